// SPDX-License-Identifier: Apache-2.0
#include "shard_pass.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"

#include "block_check.hpp"
#include "shard_segments.hpp"
#include "stream/ordered_work.hpp"
#include "stream/page_cache.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_segment_bytes = std::uint64_t{4} << 20;

struct ReadSegment {
    std::vector<std::byte> bytes;
    std::vector<Finding> findings;
};

// One thread's part of a pass.
class SegmentReader {
  public:
    SegmentReader(const ShardView& shard, const SegmentPlan& plan)
        : plan_(plan),
          path_(shard.path),
          check_(shard.manifest, shard.number, shard.path),
          fd_(open_for_reading(shard.path)) {}

    void operator()(std::uint64_t number, ReadSegment& out) {
        const FileSegment& segment = plan_.segments[number];
        out.findings.clear();
        out.bytes.resize(segment.bytes);
        const std::size_t got = read_at(fd_.value(), out.bytes, segment.offset, path_);
        lockstep::check(got == out.bytes.size(),
                        [&] { return system_error("read all of", path_, EIO); });
        for (const PlacedBlock& placed : segment.blocks) {
            const auto stored = std::span(out.bytes).subspan(placed.block.offset - segment.offset,
                                                             placed.block.stored_bytes);
            if (!check_.is_intact(placed, stored)) read_again(placed.block, stored);
            if (auto finding = check_.check(placed, stored))
                out.findings.push_back(std::move(*finding));
        }
    }

  private:
    // Past the page cache, whose copy may be what is damaged.
    void read_again(const StoredBlock& block, std::span<std::byte> stored) {
        drop_pages(fd_.value(), block.offset, block.stored_bytes);
        read_at(fd_.value(), stored, block.offset, path_);
    }

    const SegmentPlan& plan_;
    fs::path path_;
    BlockCheck check_;
    UniqueFd fd_;
};

void add_misplaced(const ShardView& shard, const SegmentPlan& plan, ShardPass& pass) {
    const BlockCheck check(shard.manifest, shard.number, shard.path);
    for (const PlacedBlock& placed : plan.cut_off)
        pass.findings.push_back(
            check.finding(placed, "E204", "they reach beyond the end of the file"));
    for (const PlacedBlock& placed : plan.overlaps)
        pass.findings.push_back(check.finding(placed, "E208", "they overlap with another block"));
}

}  // namespace

ShardPass pass_over(const ShardView& shard,
                    int threads,
                    const std::function<void(std::uint64_t)>& report) {
    const SegmentPlan plan =
        plan_segments(shard.blocks, fs::file_size(shard.path), usual_segment_bytes);
    std::vector<SegmentReader> readers;
    const auto useful = std::clamp<std::size_t>(plan.segments.size(), 1, std::max(threads, 1));
    for (std::size_t i = 0; i < useful; ++i) readers.emplace_back(shard, plan);
    std::vector<ReadSegment> slots(useful == 1 ? 1 : 2 * useful);
    ShardPass pass;
    Hasher128 hasher;
    work_in_order(plan.segments.size(), readers, slots, [&](std::uint64_t at, ReadSegment& read) {
        hasher.add(read.bytes);
        std::ranges::move(read.findings, std::back_inserter(pass.findings));
        report(plan.segments[at].offset + plan.segments[at].bytes);
    });
    add_misplaced(shard, plan, pass);
    pass.xxh3_128 = hasher.value().hex();
    return pass;
}

}  // namespace lockstep
