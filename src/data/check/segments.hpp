// SPDX-License-Identifier: Apache-2.0
// The pieces in which a shard is read and checked: a pure function of where its blocks lie.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// One block of a shard: which, and where.
struct PlacedBlock {
    std::size_t field = 0;
    std::size_t number = 0;  ///< within the shard
    StoredBlock block;
};

/// [offset, offset + bytes) of a file, with the blocks that lie in it.
struct FileSegment {
    std::uint64_t offset = 0, bytes = 0;
    std::vector<PlacedBlock> blocks{};
};

/// Segments, end to end, and blocks that are in none of them.
struct SegmentPlan {
    std::vector<FileSegment> segments;  ///< cover [0, file_bytes)
    std::vector<PlacedBlock> cut_off;   ///< reach beyond the end of the file
    std::vector<PlacedBlock> overlaps;  ///< begin before the end of another
};

/// Cuts a file of `file_bytes` with the blocks `blocks` (by field) into segments of about
/// `usual_bytes`; one block may be larger.
SegmentPlan plan_segments(const std::vector<std::vector<StoredBlock>>& blocks,
                          std::uint64_t file_bytes,
                          std::uint64_t usual_bytes);

}  // namespace lockstep
