// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which thread moves buckets between ranks during backward, and how much time that costs a step.
#pragma once

#include <optional>

namespace lockstep {

/// Which thread moves buckets on.
enum class ProgressMode {
    in_line,  ///< the step's thread, whenever a bucket is complete
    thread,   ///< a thread of its own, for ranks with a core to spare
};

/// How a Reducer's buckets are moved.
struct ProgressSettings {
    ProgressMode mode = ProgressMode::in_line;  ///< who moves them
    std::optional<int> cpu;  ///< where the thread stays; without it: where the system puts it
};

/// A thread of its own only if the rank has more CPUs than compute threads: on a shared core it
/// would take from backward what it gives to communication.
ProgressMode progress_mode_for(int cpus, int compute_threads);

/// What communication cost since it was last asked for.
struct OverlapTimes {
    double busy_s = 0;     ///< some bucket was between its arrival and its sum
    double exposed_s = 0;  ///< the step waited in finish()
};

}  // namespace lockstep
