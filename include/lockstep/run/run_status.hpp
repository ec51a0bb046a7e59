// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a run and the use of its time, from its directory alone, by one clock.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/control.hpp"
#include "lockstep/run/log_merge.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// How the clocks of a start's ranks, and of whoever reads about it, stand to rank 0's: by what the
/// ranks measured when they began (ClockEvent). Without logs all clocks count as equal.
class RunClock {
  public:
    RunClock() = default;

    /// `ranks`: the start's, in order. `log`: of its rank 0.
    explicit RunClock(std::vector<RankLogFacts> ranks, fs::path log = {});

    /// Of `rank`; 0 if that was not measured.
    double ahead_s(int rank) const;

    /// Of `host`, by the ranks there; nothing if none was.
    std::optional<double> ahead_on(std::string_view host) const;

    /// Now on rank 0's clock, for a reader on `host` whose clock says `here_s`. `heard_s`: the
    /// newest sign of life on rank 0's clock; 0: none. On a host without ranks the reader's clock
    /// counts as right. If by it the sign of life is old or lies in the future, and by the time
    /// that the file system gives the log's last line it is neither, the latter counts.
    double present_s(double here_s, std::string_view host, double heard_s) const;

  private:
    std::vector<RankLogFacts> ranks_;
    fs::path log_;
};

/// Of the start whose logs lie in `folder`, which need not be there.
RunClock read_run_clock(const fs::path& folder);

/// How far a sign of life may lie in the future: clocks that are measured or kept in time differ by
/// less.
inline constexpr double early_s = 2;

/// So long after its newest sign of life a rank of another host may still be at work: file servers
/// show late what it wrote.
inline constexpr double server_silence_s = 120;

/// state.json's phase, seen together with whether anybody is still there.
enum class RunCondition {
    starting,      ///< a start holds the run and has not begun to train
    running,       ///< a start holds the run and trains
    stuck,         ///< a start holds the run, and its flight records say what is wrong
    checkpointed,  ///< ended, to be continued
    complete,
    failed,
    lost,  ///< the newest start is not marked as ended, but its process is gone
};
std::string_view run_condition_name(RunCondition condition);  ///< the enumerator's word

/// What others know about a run, for this module reads no flight records and no manifests.
/// Times are by rank 0's clock of the newest start.
struct StatusClues {
    double now_unix_s = 0;
    double heartbeat_unix_s = 0;   ///< newest of the newest start's ranks; 0: none seen
    RunClock clock{};              ///< of the newest start
    std::int64_t saved_step = -1;  ///< of the newest committed checkpoint; -1: none
    std::string trouble{};         ///< what is wrong with the newest start's ranks; "": nothing
    bool has_ended = false;        ///< they gave up or failed, and give no sign of life any more
};

/// One start of a run, from the log of its rank 0.
struct StartRecord {
    std::int64_t incarnation = 0;
    std::string host{};           ///< of that rank
    double began_unix_s = 0;      ///< its first line
    double ended_unix_s = 0;      ///< its last line
    std::int64_t from_step = -1;  ///< it went on from here; -1: it never trained
    std::int64_t to_step = -1;    ///< newest step that was reported
    std::int64_t epoch = 0;       ///< finished with that step
    double first_report_s = 0;    ///< seconds from its first line to its first step
    double train_s = 0;           ///< of reported steps, checkpoints left out
    double save_s = 0;
    double evaluate_s = 0;
    double step_s = -1;  ///< what a step takes by the newest reports; negative: not known
    double kept_s = 0;   ///< of train_s: steps that no later start did again
};

/// Where the seconds from the first line of a run to its end, or to its newest report, went.
/// The parts sum to `elapsed`.
struct RunTimes {
    double elapsed = 0;
    double training = 0;  ///< of steps that count
    double repeated = 0;  ///< of steps that were done again, or are lost
    double saving = 0, evaluating = 0;
    double starting = 0;  ///< from a start's first line to its first step
    double down = 0;      ///< between starts
    double other = 0;     ///< steps that no report tells of, and ending

    /// training / elapsed: the effective training time ratio of Kokolis et al., arXiv 2410.21680.
    double goodput() const { return elapsed > 0 ? training / elapsed : 0; }
    double lost() const { return elapsed - training; }  ///< seconds that brought the run no further
};

/// All that is known about a run.
struct RunStatus {
    fs::path root;
    RunCondition condition = RunCondition::starting;
    std::int64_t incarnation = 0;
    std::int64_t step = 0, steps_total = 0, epoch = 0;  ///< steps_total 0: not known
    std::int64_t saved_step = -1;
    double eta_s = -1;  ///< negative: not known, or no process is at work
    double reported_s =
        -1;  ///< seconds since the newest report where one is overdue; else negative
    std::string
        trouble{};  ///< what flight records say, while somebody is at work or where it is lost
    std::string reason{};
    int exit = 0;
    bool is_held = false;        ///< this host sees the lock of a start that still is there
    std::string holder{};        ///< "process 71 on n1 since ..."; "" if no process holds it
    double sign_of_life_s = -1;  ///< seconds since the newest; negative: none was seen
    std::string answered{};      ///< RunState::answered
    std::optional<ControlRequest> asked{};  ///< what has not been met yet
    std::vector<StartRecord> starts{};
    RunTimes times{};

    /// Whether somebody is at work on it.
    bool is_alive() const {
        return condition == RunCondition::starting || condition == RunCondition::running ||
               condition == RunCondition::stuck;
    }

    /// Whether the same command would end with the same error, by the kind of its exit code.
    bool fails_again() const;
};

/// Whether `root` is a run, or will be one as soon as its start has set up. Errors: E202 if this
/// user may not look.
bool is_run(const fs::path& root);

/// Whether logs, which may be long, are read for `starts`, `times` and `eta_s`.
enum class StatusDepth { now, history };

/// Errors: E201 if `root` is missing, E202 if this user may not look into it, E688 if it is no run,
/// E222 if its state is damaged.
RunStatus read_run_status(const fs::path& root,
                          const StatusClues& clues,
                          StatusDepth depth = StatusDepth::history);

/// Errors: E201 if `root` is missing, E202 if this user may not look for it.
void check_is_there(const fs::path& root);

/// Runs at and below `folder`, by name; inside a run too, as a study's points. Where this user may
/// not look is listed as well: asking for its status says so. Errors: E201, E202.
std::vector<fs::path> find_runs(const fs::path& folder);

/// "to go on"; of a run that would fail again: after its error is fixed.
std::string_view going_on_label(const RunStatus& status);

/// Several lines about one run.
std::string status_text(const RunStatus& status);

/// A table with one line for each run.
std::string status_table(std::span<const RunStatus> runs);

/// The same for programs.
Json status_json(const RunStatus& status);

}  // namespace lockstep
