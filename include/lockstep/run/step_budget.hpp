// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time of each step of each rank, by phase: rank-NNNNN.steps next to the rank's log.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// One step of one rank, from the end of the step before (saving and evaluating in between
/// included) to its own end; the last step of a start has what came after it, too. The phases sum
/// to its wall time.
struct StepBudget {
    std::int64_t step = 0;    ///< its number, from 1
    double ended_unix_s = 0;  ///< by the rank's own clock
    PhaseSeconds phases{};

    double wall_s() const;  ///< all phases
    double own_s() const;   ///< wall_s() without Phase::wait: what the others may have waited for
    /// Goes on to the end of `next`, which follows it or is another part of it.
    StepBudget& operator+=(const StepBudget& next);

    /// Seconds of one phase.
    double at(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
};

/// "`logs`/rank-00003.steps", `logs` being a start's folder of logs.
fs::path step_budgets_path(const fs::path& logs, int rank);

/// Keeps the newest steps of a rank, in a file of bounded size: when it is full, the oldest are
/// written over. One thread.
class StepBudgetFile {
  public:
    static constexpr std::size_t most_steps = 16'384;  ///< 1 MiB

    /// Makes `path` anew (0600). Errors: E401, E402.
    explicit StepBudgetFile(const fs::path& path, std::size_t capacity = most_steps);
    ~StepBudgetFile();
    StepBudgetFile(const StepBudgetFile&) = delete;
    StepBudgetFile& operator=(const StepBudgetFile&) = delete;

    /// Remembers `budget`, of which a step may have several parts, one after another; every 64th
    /// call, the first one a second after what was remembered, and flush() write, so that it costs
    /// well below a microsecond on average. A file that cannot be written is given up: no step
    /// fails for it.
    void add(const StepBudget& budget);

    /// Writes what has not been written yet.
    void flush();

  private:
    fs::path path_;
    UniqueFd file_;
    std::size_t capacity_, written_ = 0;
    std::vector<StepBudget> waiting_;
};

/// The steps that `path` holds, oldest first, those of another version of the format left out, and
/// those that damage made senseless: all times are finite. Empty if the file is missing. A step
/// that was done again after a rollback is there again. Errors: E202, E222 if it is no such file.
std::vector<StepBudget> read_step_budgets(const fs::path& path);

}  // namespace lockstep
