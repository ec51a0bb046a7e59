// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory that this process uses.
#pragma once

#include "lockstep/core/record.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace lockstep {

/// Present memory of this process.
struct MemoryUse {
    std::uint64_t resident_bytes = 0;       ///< VmRSS: shared pages count in every process
    std::uint64_t peak_resident_bytes = 0;  ///< VmHWM
};

/// The memory of a rank's model and of what trains it. Ranks of a node may share the parameters.
struct ModelBytes {
    std::uint64_t parameters = 0;  ///< with buffers and padding
    std::uint64_t gradients = 0;   ///< of its leaves and their sums
    std::uint64_t state = 0;       ///< the optimizer's
    bool operator==(const ModelBytes&) const = default;
};
void describe(Record& record, ModelBytes& bytes);  ///< the form in logs

/// Returns the bytes of `memory`, of any alignment, that are on pages in memory at present; all
/// where the kernel does not say.
std::uint64_t resident_bytes(std::span<const std::byte> memory);

/// Reads /proc/self/status below `root`; zeros if it is missing. Cheap enough for every report.
MemoryUse memory_use(const std::filesystem::path& root = "/");

/// Returns PSS from /proc/self/smaps_rollup: shared pages are divided by their users, so that the
/// sum over the ranks of a node is the node's use. It walks all page tables; call it once at the
/// end of a run.
std::uint64_t proportional_memory_bytes(const std::filesystem::path& root = "/");

/// Returns the bytes that this process can still take: those available on the node, or fewer where
/// a control group's limit leaves less. Reads below `root`; without a limit or a fact: the largest
/// number.
std::uint64_t memory_left(const std::filesystem::path& root = "/");

}  // namespace lockstep
