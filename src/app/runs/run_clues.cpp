// SPDX-License-Identifier: Apache-2.0
#include "runs/run_clues.hpp"

#include "lockstep/comm/rank_trace.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/run_directory.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// 0 where the ranks have left no records, or have not made them yet.
double newest_heartbeat(const fs::path& run) {
    double newest = 0;
    try {
        for (const RankTrace& trace : read_rank_traces(RunPaths{run}.flight(read_incarnation(run))))
            if (trace.damage.empty()) newest = std::max(newest, trace.heartbeat_s);
    } catch (const Error&) {
    }
    return newest;
}

}  // namespace

RunStatus status_of_run(const fs::path& run, StatusDepth depth) {
    StatusClues clues{.now_unix_s = unix_time_s(), .heartbeat_unix_s = newest_heartbeat(run)};
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    if (!checkpoints.empty()) clues.saved_step = checkpoints.back().step;
    return read_run_status(run, clues, depth);
}

}  // namespace lockstep
