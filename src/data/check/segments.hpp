// SPDX-License-Identifier: Apache-2.0
// The pieces in which a shard is read and checked: a pure function of where its blocks lie.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
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
inline SegmentPlan plan_segments(const std::vector<std::vector<StoredBlock>>& blocks,
                                 std::uint64_t file_bytes,
                                 std::uint64_t usual_bytes) {
    SegmentPlan plan;
    FileSegment now;
    const auto end = [&] { return now.offset + now.bytes; };
    const auto close = [&] {
        const std::uint64_t next = end();
        if (now.bytes > 0) plan.segments.push_back(std::move(now));
        now = {.offset = next};
    };
    // What lies between blocks is cut anywhere.
    const auto fill_to = [&](std::uint64_t offset) {
        while (end() < offset) {
            if (now.bytes >= usual_bytes) close();
            now.bytes += std::min(offset - end(), usual_bytes - now.bytes);
        }
    };
    std::vector<PlacedBlock> by_offset;
    for (std::size_t f = 0; f < blocks.size(); ++f)
        for (std::size_t b = 0; b < blocks[f].size(); ++b)
            by_offset.push_back({f, b, blocks[f][b]});
    std::ranges::stable_sort(by_offset, {}, [](const PlacedBlock& at) { return at.block.offset; });
    for (PlacedBlock& placed : by_offset) {
        const StoredBlock& block = placed.block;
        if (block.offset > file_bytes || block.stored_bytes > file_bytes - block.offset) {
            plan.cut_off.push_back(std::move(placed));
        } else if (block.offset < end()) {
            plan.overlaps.push_back(std::move(placed));
        } else {
            fill_to(block.offset);
            if (now.bytes > 0 && now.bytes + block.stored_bytes > usual_bytes) close();
            now.bytes += block.stored_bytes;
            now.blocks.push_back(std::move(placed));
        }
    }
    fill_to(file_bytes);
    close();
    return plan;
}

}  // namespace lockstep
