// SPDX-License-Identifier: Apache-2.0
// The evidence for a report's rules, and the finding of each. docs/report.md lists them all.
#pragma once

#include "report/report_words.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// A run, and its report without the findings.
struct Evidence {
    const RunFigures& run;
    const Report& report;

    const RunStatus& status() const { return report.clues.status; }
    const RunTimes& times() const { return report.clues.status.times; }

    double seconds(Phase phase) const { return report.mean.phases[phase]; }  ///< of a mean step
    double share(Phase phase) const;     ///< share of a mean step, 0 to 1
    double share(double seconds) const;  ///< share of the time since the first start
    std::string folder() const;          ///< the run's folder, as a word of a command

    /// Returns the command that made the run with changed settings; "" if it is unknown.
    std::string train(const ChangedSettings& changed) const;

    /// Returns the same command for a new run, for settings that decide bits.
    std::string train_anew(ChangedSettings changed) const;
};

using Found = std::optional<ReportFinding>;

/// Returns "23 %" for 0.23.
std::string share_text(double share);

// Rules about steps.
Found find_straggler(const Evidence& seen);
Found find_uneven_leaves(const Evidence& seen);
Found find_waiting(const Evidence& seen);
Found find_slow_data(const Evidence& seen);
Found find_communication(const Evidence& seen);
Found find_other_time(const Evidence& seen);
Found find_first_step(const Evidence& seen);

}  // namespace lockstep
