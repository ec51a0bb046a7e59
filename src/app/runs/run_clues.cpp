// SPDX-License-Identifier: Apache-2.0
#include "runs/run_clues.hpp"

#include "lockstep/comm/verdict.hpp"
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

}  // namespace

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
