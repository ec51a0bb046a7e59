// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a run and the use of its time, from its directory alone, by one clock.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/run_directory.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The offsets from rank 0's clock of the clocks of a start's ranks and of the reader, as the ranks
/// measured them at their begin (ClockEvent). Without logs all clocks count as equal.
class RunClock {
  public:
    RunClock() = default;

    /// `ranks`: those of the start, in order. `log`: the log of its rank 0.
    explicit RunClock(std::vector<RankLogFacts> ranks, fs::path log = {});

    /// Returns the offset of `rank`; 0 if it was not measured.
    double ahead_s(int rank) const;

    /// Returns the offset of `host`, by the ranks there; nothing if there are none.
    std::optional<double> ahead_on(std::string_view host) const;

    /// Returns the present time on rank 0's clock, for a reader on `host` whose clock shows
    /// `here_s`. `heard_s`: the newest sign of life on rank 0's clock; 0: none. On a host without
    /// ranks the reader's clock counts as correct. If it makes the sign of life old or places it in
    /// the future, and the file system's time of the log's last line does not, the latter counts.
    double present_s(double here_s, std::string_view host, double heard_s) const;

  private:
    std::vector<RankLogFacts> ranks_;
    fs::path log_;
};

/// Returns the clock of the start with logs in `folder`, which may be missing.
RunClock read_run_clock(const fs::path& folder);

/// Tolerance for a sign of life in the future: measured or synchronised clocks differ by less.
inline constexpr double early_s = 2;

/// The phase of state.json, combined with whether any process is still there.
enum class RunCondition {
    starting,      ///< a start holds the run and has not begun to train
    running,       ///< a start holds the run and trains
    stuck,         ///< a start holds the run, and its flight records show a problem
    checkpointed,  ///< ended, to be resumed
    complete,
    failed,
    lost,  ///< the newest start is not marked as ended, but its process is gone
};
std::string_view run_condition_name(RunCondition condition);  ///< the enumerator's name

/// Facts about a run from other modules, because this one reads no flight records and no manifests.
/// Times are by rank 0's clock of the newest start.
struct StatusClues {
    double now_unix_s = 0;
    double heartbeat_unix_s = 0;   ///< newest heartbeat of the newest start's ranks; 0: none seen
    RunClock clock{};              ///< clock of the newest start
    std::int64_t saved_step = -1;  ///< step of the newest committed checkpoint; -1: none
    std::string trouble{};         ///< problem of the newest start's ranks; "": none
    bool has_ended = false;        ///< they gave up or failed, and show no sign of life any more
};

/// One start of a run, from the log of its rank 0.
struct StartRecord {
    std::int64_t incarnation = 0;
    std::string host{};           ///< host of that rank
    double began_unix_s = 0;      ///< time of its first line
    double ended_unix_s = 0;      ///< time of its last line
    std::int64_t from_step = -1;  ///< step from which it resumed; -1: it never trained
    std::int64_t to_step = -1;    ///< newest reported step
    std::int64_t epoch = 0;       ///< epochs finished with that step
    double first_report_s = 0;    ///< seconds from its first line to its first step
    double train_s = 0;           ///< seconds of reported steps, without checkpoints
    double save_s = 0, evaluate_s = 0;
    double step_s = -1;  ///< seconds of a step by the newest reports; negative: unknown
    double kept_s = 0;   ///< part of train_s in steps that no later start repeated
};

/// The use of the seconds from a run's first line to its end, or to its newest report. The parts
/// sum to `elapsed`.
struct RunTimes {
    double elapsed = 0;
    double training = 0;  ///< steps that count
    double repeated = 0;  ///< steps that were repeated, or are lost
    double saving = 0, evaluating = 0;
    double starting = 0;  ///< from a start's first line to its first step
    double down = 0;      ///< between starts
    double other = 0;     ///< steps without a report, and ending

    /// Returns training / elapsed: the effective training time ratio of Kokolis et al., arXiv
    /// 2410.21680.
    double goodput() const { return elapsed > 0 ? training / elapsed : 0; }
    double lost() const { return elapsed - training; }  ///< seconds without progress of the run
};

/// The status of a run.
struct RunStatus {
    fs::path root;
    RunCondition condition = RunCondition::starting;
    std::int64_t incarnation = 0;
    std::int64_t step = 0, steps_total = 0, epoch = 0;  ///< steps_total 0: unknown
    std::int64_t saved_step = -1;
    double eta_s = -1;  ///< negative: unknown, or no process is at work
    double reported_s =
        -1;  ///< seconds since the newest report if the next one is overdue; else negative
    std::string
        trouble{};  ///< problem in flight records, while a process is at work or if it is lost
    std::string reason{};
    int exit = 0;
    bool is_held = false;        ///< this host sees the lock of a start that is still there
    std::string holder{};        ///< "process 71 on n1 since ..."; "" if no process holds it
    double sign_of_life_s = -1;  ///< seconds since the newest sign of life; negative: none was seen
    std::string answered{};      ///< RunState::answered
    std::optional<ControlRequest> asked{};  ///< request that has not been met yet
    std::vector<StartRecord> starts{};
    RunTimes times{};

    /// Returns true if a process is at work on it.
    bool is_alive() const {
        return condition == RunCondition::starting || condition == RunCondition::running ||
               condition == RunCondition::stuck;
    }

    /// Returns true if the same command would end with the same error, by its exit code.
    bool fails_again() const;
};

/// Returns true if `root` is a run, or will be one once its start has set up. Errors: E202 if this
/// user may not read it.
bool is_run(const fs::path& root);

/// Depth of a status: history reads the logs, which may be long, for `starts`, `times` and `eta_s`.
enum class StatusDepth { now, history };

/// Reads the status of a run. Errors: E201 if `root` is missing, E202 if this user may not read it,
/// E688 if it is no run, E222 if its state is damaged.
RunStatus read_run_status(const fs::path& root,
                          const StatusClues& clues,
                          StatusDepth depth = StatusDepth::history);

/// Checks that `root` exists. Errors: E201 if missing, E202 if this user may not search for it.
void check_is_there(const fs::path& root);

/// Returns the runs at and below `folder`, by name; also runs inside a run's folder.
/// Folders that this user may not read are listed as well: reading their status gives the error.
/// Errors: E201, E202.
std::vector<fs::path> find_runs(const fs::path& folder);

/// Returns a label for the command that continues the run: "to go on". For a run that would fail
/// again, it adds that the error must be fixed first.
std::string_view going_on_label(const RunStatus& status);

/// Returns several lines about one run.
std::string status_text(const RunStatus& status);

/// A further column of a table of runs.
struct RunColumn {
    std::string name;
    std::vector<std::string> cells;  ///< cells by run
};

/// Returns a table with one line for each run, and `more` columns after those of the status.
std::string status_table(std::span<const RunStatus> runs, std::span<const RunColumn> more = {});

/// Returns the same for programs.
Json status_json(const RunStatus& status);

}  // namespace lockstep
