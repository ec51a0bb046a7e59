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

/// One step of one rank, from the end of the previous step (saving and evaluating in between
/// included) to its own end. The last step of a start also includes the time after it. The phases
/// sum to its wall time.
struct StepBudget {
    std::int64_t step = 0;    ///< its number, from 1
    double ended_unix_s = 0;  ///< by the rank's own clock
    PhaseSeconds phases{};

    double wall_s() const { return phases.sum(); }  ///< from its begin to its end

    /// Returns wall_s() without Phase::wait: time that other ranks may have waited for.
    double own_s() const { return wall_s() - phases[Phase::wait]; }

    /// Extends this to the end of `next`, which follows it or is another part of it.
    StepBudget& operator+=(const StepBudget& next);
};

/// Returns "`logs`/rank-00003.steps"; `logs` is a start's folder of logs.
fs::path step_budgets_path(const fs::path& logs, int rank);

/// Keeps the newest steps of a rank in a file of bounded size: when it is full, the oldest are
/// overwritten. One thread.
class StepBudgetFile {
  public:
    static constexpr std::size_t most_steps = 16'384;  ///< 1 MiB

    /// Creates or empties `path` (0600). Errors: E401, E402.
    explicit StepBudgetFile(const fs::path& path, std::size_t capacity = most_steps);
    ~StepBudgetFile();
    StepBudgetFile& operator=(StepBudgetFile&&) = delete;

    /// Stores `budget`; a step may have several parts, one after another. Writes happen at every
    /// 64th call, at the first call a second after the oldest stored one, and at flush(): the
    /// average cost is far below a microsecond. If the file cannot be written, recording stops, and
    /// no step fails.
    void add(const StepBudget& budget);

    /// Writes all stored steps.
    void flush();

  private:
    fs::path path_;
    UniqueFd file_;
    std::size_t capacity_, written_ = 0;
    std::vector<StepBudget> waiting_;
};

/// Returns the steps in `path`, oldest first, without those of another version of the format and
/// damaged ones: all times are finite. Empty if the file is missing. A step that was repeated after
/// a rollback is there twice. Errors: E202, E222 if it is no such file.
std::vector<StepBudget> read_step_budgets(const fs::path& path);

}  // namespace lockstep
