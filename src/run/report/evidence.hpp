// SPDX-License-Identifier: Apache-2.0
// What the rules of a report look at, and what each gives. docs/report.md lists them all.
#pragma once

#include "report/report_words.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// A run, and its report but for the findings.
struct Evidence {
    const RunFigures& run;
    const Report& report;

    const RunStatus& status() const { return report.clues.status; }
    const RunTimes& times() const { return report.clues.status.times; }

    double seconds(Phase phase) const;   ///< of a mean step
    double share(Phase phase) const;     ///< of a mean step, 0 to 1
    double share(double seconds) const;  ///< of the time since the first start
    std::string folder() const;          ///< the run's, as a word of a command

    /// The command that made the run with other settings; "" where it is not known.
    std::string train(const ChangedSettings& changed) const;

    /// The same as a run of its own, for settings that decide bits.
    std::string train_anew(ChangedSettings changed) const;
};

using Found = std::optional<ReportFinding>;

/// "23 %" of 0.23.
std::string share_text(double share);

// Of steps.
Found find_straggler(const Evidence& seen);
Found find_uneven_leaves(const Evidence& seen);
Found find_waiting(const Evidence& seen);
Found find_slow_data(const Evidence& seen);
Found find_communication(const Evidence& seen);
Found find_other_time(const Evidence& seen);
Found find_first_step(const Evidence& seen);

// Of the run's time.
Found find_saving(const Evidence& seen);
Found find_evaluating(const Evidence& seen);
Found find_slow_start(const Evidence& seen);
Found find_repeated_steps(const Evidence& seen);
Found find_restarts(const Evidence& seen);

// Of what was learned, and from what.
Found find_bad_loss(const Evidence& seen);
Found find_skipped_steps(const Evidence& seen);
Found find_overfitting(const Evidence& seen);
Found find_masked_samples(const Evidence& seen);
Found find_read_retries(const Evidence& seen);

}  // namespace lockstep
