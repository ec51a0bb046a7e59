// SPDX-License-Identifier: Apache-2.0
#include "check/block_check.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

StoredBlock block_at(std::uint64_t offset, std::uint64_t bytes) {
    return {.offset = offset, .stored_bytes = bytes};
}

TEST(ShardSegments, CoverTheFileAndCutNoBlock) {
    const auto plan =
        plan_segments({{block_at(300, 90), block_at(100, 90)}, {block_at(390, 500)}}, 1000, 128);
    std::uint64_t end = 0, blocks = 0;
    for (const FileSegment& segment : plan.segments) {
        EXPECT_EQ(segment.offset, end);
        EXPECT_GT(segment.bytes, 0u);
        end += segment.bytes;
        for (const PlacedBlock& placed : segment.blocks) {
            EXPECT_GE(placed.block.offset, segment.offset);
            EXPECT_LE(placed.block.offset + placed.block.stored_bytes, end);
            ++blocks;
        }
        EXPECT_TRUE(segment.bytes <= 128 || segment.blocks.size() == 1);
    }
    EXPECT_EQ(end, 1000u);
    EXPECT_EQ(blocks, 3u);
}

TEST(ShardSegments, SetsAsideWhatCannotBeRead) {
    const auto plan = plan_segments(
        {{block_at(0, 100), block_at(50, 10), block_at(990, 20), block_at(~std::uint64_t{0}, 9)}},
        1000,
        4096);
    ASSERT_EQ(plan.overlaps.size(), 1u);
    EXPECT_EQ(plan.overlaps[0].number, 1u);
    EXPECT_EQ(plan.cut_off.size(), 2u);
    EXPECT_TRUE(plan_segments({}, 0, 4096).segments.empty());
}

}  // namespace
}  // namespace lockstep
