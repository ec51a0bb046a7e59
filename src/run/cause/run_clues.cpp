// SPDX-License-Identifier: Apache-2.0
// All facts about a run, by one clock and from one source: the newest start's records, on rank 0's
// clock, and its ranks' own records of their end.
//
// What must never happen:
// - A time of another host is compared with this host's clock as it stands: see RunClock.
// - A run "ended without a word" though a rank's log, or the verdict of its ranks, has that word.
//
// Tested: app/runs/run_clues_test.cpp.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/verdict.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The flight records of a start and the present, on its rank 0's clock.
struct Records {
    RunClock clock;
    std::vector<RankTrace> traces;
    double heard_s = 0;  ///< the newest sign of life; 0: none
    double now_s = 0;
};

// Errors: E663.
Records read_records(const fs::path& run, std::int64_t start) {
    Records found{.clock = read_run_clock(RunPaths{run}.logs(start))};
    found.traces = read_rank_traces(RunPaths{run}.flight(start));
    for (RankTrace& trace : found.traces) {
        if (!trace.damage.empty()) continue;
        put_on_clock(trace, found.clock.ahead_s(trace.rank));
        found.heard_s = std::max(found.heard_s, trace.heartbeat_s);
    }
    found.now_s = found.clock.present_s(unix_time_s(), host_name(), found.heard_s);
    return found;
}

// Without traces where the ranks have left no records, or have not made them yet.
Records records_if_any(const fs::path& run) {
    Records none{.now_s = unix_time_s()};
    try {
        const std::int64_t start = read_incarnation(run);
        none.clock = read_run_clock(RunPaths{run}.logs(start));
        none.now_s = none.clock.present_s(none.now_s, host_name(), 0);
        return read_records(run, start);
    } catch (const Error&) {
        return none;
    }
}

std::string trouble_text(const Verdict& verdict) {
    if (verdict.trouble == Trouble::none || verdict.trouble == Trouble::ended) return "";
    return fmt::format("{}: {}", name_of(verdict.trouble), verdict.what);
}

std::optional<Verdict> verdict_if_any(const fs::path& flight) try {
    return read_verdict(flight);
} catch (const Error&) {
    return {};
}

// Its ranks have said that they give up, or one that it failed, and all are silent since.
bool has_ended(const fs::path& flight, const Records& found) {
    const auto failed = [](const RankTrace& trace) { return trace.end == FlightEnd::failed; };
    const bool is_said = std::ranges::any_of(found.traces, failed) || verdict_if_any(flight);
    return is_said && found.now_s - found.heard_s > silence_after_end_s;
}

// By the run's own files and flight records alone.
RunStatus recorded_status(const fs::path& run, StatusDepth depth) {
    const Records found = records_if_any(run);
    StatusClues clues{
        .now_unix_s = found.now_s,
        .heartbeat_unix_s = found.heard_s,
        .clock = found.clock,
        .trouble = trouble_text(diagnose(found.traces, found.now_s, patience_of(found.traces)))};
    if (!found.traces.empty())
        clues.has_ended = has_ended(RunPaths{run}.flight(read_incarnation(run)), found);
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    if (!checkpoints.empty()) clues.saved_step = checkpoints.back().step;
    return read_run_status(run, clues, depth);
}

std::optional<RootCause> cause_if_any(const fs::path& run, std::int64_t start) try {
    return root_cause(run, start);
} catch (const Error&) {
    return {};
}

// A rank that was killed in the middle of its end has logged why, though nobody wrote a state.
void tell_end(RunStatus& status) {
    const auto cause = cause_if_any(status.root, status.incarnation);
    if (!cause) return;
    const RankError& error = cause->error;
    const auto given = verdict_if_any(RunPaths{status.root}.flight(status.incarnation));
    if (cause->is_verdict && !given) {
        status.trouble = fmt::format("{}: {}", cause->trouble, error.what);
        return;
    }
    status.condition = RunCondition::failed;
    status.reason = printable(fmt::format("{}: {}{}",
                                          error.code,
                                          cause->is_verdict ? "" : ranks_text(error.ranks) + ": ",
                                          error.what));
    const ErrorEntry* const known = find_error(error.code);
    status.exit = static_cast<int>(known ? known->exit_code : ExitCode::bug);
}

// A start is over when a newer one has begun, and when the run says so or nobody holds it.
bool is_start_over(const fs::path& run, std::int64_t incarnation) {
    if (!is_run(run)) return false;
    const RunStatus status = recorded_status(run, StatusDepth::now);
    return incarnation < status.incarnation || !status.is_alive();
}

}  // namespace

Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation) {
    check_is_there(run);
    Diagnosis found{.incarnation = incarnation > 0 ? incarnation : read_incarnation(run)};
    const fs::path folder = RunPaths{run}.flight(found.incarnation);
    Records records = read_records(run, found.incarnation);
    found.traces = std::move(records.traces);
    found.is_over = is_start_over(run, found.incarnation);
    // For a start that is over all signs of life are old, whatever this host's clock shows.
    found.now_s = found.is_over && records.heard_s > records.now_s + early_s
                      ? records.heard_s + silence_after_end_s + 1
                      : records.now_s;
    found.verdict = diagnose(found.traces,
                             found.now_s,
                             patience_of(found.traces),
                             found.is_over ? silence_after_end_s : silence_s);
    if (const auto given = read_verdict(folder)) found.verdict = *given;
    return found;
}

double patience_of(std::span<const RankTrace> traces) {
    double patience_s = 0;
    for (const RankTrace& trace : traces) patience_s = std::max(patience_s, trace.warn_s);
    return patience_s;
}

RunStatus status_of_run(const fs::path& run, StatusDepth depth) {
    RunStatus status = recorded_status(run, depth);
    if (status.condition == RunCondition::lost) tell_end(status);
    return status;
}

}  // namespace lockstep
