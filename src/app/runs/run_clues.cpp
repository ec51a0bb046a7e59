// SPDX-License-Identifier: Apache-2.0
#include "runs/run_clues.hpp"

#include "lockstep/comm/verdict_file.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/run_directory.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Empty where the ranks have left no records, or have not made them yet.
std::vector<RankTrace> traces_of(const fs::path& run) {
    try {
        return read_rank_traces(RunPaths{run}.flight(read_incarnation(run)));
    } catch (const Error&) {
        return {};
    }
}

std::string trouble_in(std::span<const RankTrace> traces, double now_s) {
    const Verdict verdict = diagnose(traces, now_s, patience_of(traces));
    if (verdict.trouble == Trouble::none || verdict.trouble == Trouble::ended) return "";
    return fmt::format("{}: {}", name_of(verdict.trouble), verdict.what);
}

// A start is over when a newer one has begun, and when the run says so or nobody holds it.
bool is_start_over(const fs::path& run, std::int64_t incarnation) {
    if (!is_run(run)) return false;
    const RunStatus status = status_of_run(run, StatusDepth::now);
    return incarnation < status.incarnation || !status.is_alive();
}

}  // namespace

Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation) {
    check_is_there(run);
    Diagnosis found{.incarnation = incarnation > 0 ? incarnation : read_incarnation(run)};
    const fs::path folder = RunPaths{run}.flight(found.incarnation);
    found.traces = read_rank_traces(folder);
    found.now_s = unix_time_s();
    found.is_over = is_start_over(run, found.incarnation);
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
    const auto traces = traces_of(run);
    StatusClues clues{.now_unix_s = unix_time_s()};
    for (const RankTrace& trace : traces)
        if (trace.damage.empty())
            clues.heartbeat_unix_s = std::max(clues.heartbeat_unix_s, trace.heartbeat_s);
    clues.trouble = trouble_in(traces, clues.now_unix_s);
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    if (!checkpoints.empty()) clues.saved_step = checkpoints.back().step;
    return read_run_status(run, clues, depth);
}

}  // namespace lockstep
