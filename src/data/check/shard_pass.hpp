// SPDX-License-Identifier: Apache-2.0
// Checks of one shard that need a single pass over its bytes.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/verify.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A shard to check; `blocks` (by field) come from its index, as far as that can be trusted.
struct ShardView {
    const Manifest& manifest;
    std::size_t number = 0;
    std::filesystem::path path;
    std::vector<std::vector<StoredBlock>> blocks;
};

/// The findings of a pass, in the order of the file, and the hash of the whole file.
struct ShardPass {
    std::vector<Finding> findings;
    std::string xxh3_128;
};

/// Reads the file once, in pieces, on `threads` threads (>= 1) that also check the blocks, and
/// hashes it at the same time. Calls `report` with the bytes done. Errors: those of reading.
ShardPass pass_over(const ShardView& shard,
                    int threads,
                    const std::function<void(std::uint64_t)>& report);

}  // namespace lockstep
