// SPDX-License-Identifier: Apache-2.0
#include "shard_segments.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::vector<PlacedBlock> by_offset(const std::vector<std::vector<StoredBlock>>& blocks) {
    std::vector<PlacedBlock> all;
    for (std::size_t f = 0; f < blocks.size(); ++f)
        for (std::size_t b = 0; b < blocks[f].size(); ++b) all.push_back({f, b, blocks[f][b]});
    std::ranges::stable_sort(all, {}, [](const PlacedBlock& at) { return at.block.offset; });
    return all;
}

// Cuts what lies between blocks anywhere.
class Cutter {
  public:
    Cutter(std::uint64_t usual_bytes, std::vector<FileSegment>& segments)
        : usual_(usual_bytes), segments_(segments) {}

    std::uint64_t end() const { return segment_.offset + segment_.bytes; }

    void fill_to(std::uint64_t offset) {
        while (end() < offset) {
            if (segment_.bytes >= usual_) close();
            segment_.bytes += std::min(offset - end(), usual_ - segment_.bytes);
        }
    }
    void add(PlacedBlock block) {
        fill_to(block.block.offset);
        if (segment_.bytes > 0 && segment_.bytes + block.block.stored_bytes > usual_) close();
        segment_.bytes += block.block.stored_bytes;
        segment_.blocks.push_back(std::move(block));
    }
    void close() {
        const std::uint64_t next = end();
        if (segment_.bytes > 0) segments_.push_back(std::move(segment_));
        segment_ = {.offset = next, .bytes = 0, .blocks = {}};
    }

  private:
    std::uint64_t usual_;
    std::vector<FileSegment>& segments_;
    FileSegment segment_;
};

}  // namespace

SegmentPlan plan_segments(const std::vector<std::vector<StoredBlock>>& blocks,
                          std::uint64_t file_bytes,
                          std::uint64_t usual_bytes) {
    SegmentPlan plan;
    Cutter cutter(usual_bytes, plan.segments);
    for (PlacedBlock& placed : by_offset(blocks)) {
        const StoredBlock& block = placed.block;
        if (block.offset > file_bytes || block.stored_bytes > file_bytes - block.offset)
            plan.cut_off.push_back(std::move(placed));
        else if (block.offset < cutter.end())
            plan.overlaps.push_back(std::move(placed));
        else
            cutter.add(std::move(placed));
    }
    cutter.fill_to(file_bytes);
    cutter.close();
    return plan;
}

}  // namespace lockstep
