// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much memory this process has.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Of this process, now.
struct MemoryUse {
    std::uint64_t resident_bytes = 0;       ///< VmRSS: shared pages count in every process
    std::uint64_t peak_resident_bytes = 0;  ///< VmHWM
};

/// From /proc/self/status below `root`; zeros where it is missing. Cheap enough for every report.
MemoryUse memory_use(const std::filesystem::path& root = "/");

/// PSS from /proc/self/smaps_rollup: shared pages divided by their users, so that the sum over the
/// ranks of a node is what the node spends. Walks all page tables; once at the end of a run.
std::uint64_t proportional_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace lockstep
