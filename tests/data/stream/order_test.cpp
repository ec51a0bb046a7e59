// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/order.hpp"

#include "soak/order_sweep.hpp"
#include "support/unit.hpp"

#include <algorithm>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

std::vector<std::uint64_t> sequence(const EpochOrder& order) {
    std::vector<std::uint64_t> samples(order.samples());
    for (std::uint64_t p = 0; p < samples.size(); ++p) samples[p] = order.sample_at(p);
    return samples;
}

bool is_permutation_of_all(std::vector<std::uint64_t> samples) {
    std::ranges::sort(samples);
    for (std::uint64_t i = 0; i < samples.size(); ++i)
        if (samples[i] != i) return false;
    return true;
}

struct Case {
    std::uint64_t samples;
    std::uint32_t block_rows;
    OrderSpec spec;
};

Case any_case() {
    const auto kind =
        *rc::gen::element(OrderKind::lanes, OrderKind::uniform, OrderKind::sequential);
    return {*rc::gen::inRange<std::uint64_t>(1, 600),
            *rc::gen::inRange<std::uint32_t>(1, 40),
            {kind,
             *rc::gen::arbitrary<std::uint64_t>(),
             *rc::gen::inRange(1, 20),
             *rc::gen::inRange(1, 6)}};
}

EpochOrder order_of(const Case& of, std::uint64_t epoch) {
    return {row_blocks(of.samples, of.block_rows), of.spec, epoch};
}

std::vector<std::uint64_t> rows_of(const EpochOrder& order, const LaneRange& window) {
    std::vector<std::uint64_t> rows;
    for (const RowRun& run : order.rows_of(window))
        for (std::uint64_t i = 0; i < run.rows; ++i) rows.push_back(run.first + i);
    return rows;
}

// Those of all lanes, in order.
std::vector<LaneRange> windows_of(const EpochOrder& order) {
    std::vector<LaneRange> windows;
    for (int lane = 0; lane < order.lanes(); ++lane)
        for (std::uint64_t p = 0; p < order.lane_samples(lane); p = windows.back().end)
            windows.push_back(order.window_at(lane, p));
    return windows;
}

// The samples of a range of steps, through the windows, as the reader goes about it.
std::vector<std::uint64_t> samples_of(const EpochOrder& order,
                                      const std::vector<LaneRange>& slice) {
    std::vector<std::uint64_t> samples;
    for (const LaneRange& part : slice)
        for (std::uint64_t position = part.begin; position < part.end; ++position) {
            const LaneRange window = order.window_at(part.lane, position);
            const std::vector<std::uint64_t> rows = rows_of(order, window);
            samples.push_back(rows[order.permutation_of(window)[position - window.begin]]);
        }
    return samples;
}

RC_GTEST_PROP(Order, HasEachSampleOnceAnEpoch, ()) {
    const Case of = any_case();
    const EpochOrder order = order_of(of, *rc::gen::inRange<std::uint64_t>(0, 5));
    RC_ASSERT(order.samples() == of.samples);
    RC_ASSERT(is_permutation_of_all(sequence(order)));
}

RC_GTEST_PROP(Order, DoesNotDependOnBatchLeavesOrRanks, ()) {
    const Case of = any_case();
    const EpochOrder order = order_of(of, 3);
    const std::vector<std::uint64_t> reference = sequence(order);
    const auto batch = *rc::gen::inRange<std::uint64_t>(1, 100);
    const auto leaves = *rc::gen::inRange(1, 9);
    const auto cut = *rc::gen::inRange(0, leaves + 1);  // two ranks share the leaves
    for (std::uint64_t begin = 0; begin < of.samples; begin += batch) {
        const std::uint64_t end = std::min(begin + batch, of.samples);
        auto step = samples_of(order, leaf_slice(begin, end, order.lanes(), 0, cut, leaves));
        const auto rest =
            samples_of(order, leaf_slice(begin, end, order.lanes(), cut, leaves, leaves));
        step.insert(step.end(), rest.begin(), rest.end());
        RC_ASSERT(step.size() == end - begin);
        RC_ASSERT(std::is_permutation(
            step.begin(), step.end(), reference.begin() + static_cast<std::ptrdiff_t>(begin)));
        // However the leaves are spread, their rows are these, in this order.
        RC_ASSERT(step ==
                  samples_of(order, leaf_slice(begin, end, order.lanes(), 0, leaves, leaves)));
    }
}

// A part's order, of blocks of any size.
EpochOrder order_of_part(Case of, const SamplePart& part) {
    of.spec.part = part;
    return {blocks_in(row_blocks(of.samples, of.block_rows), part), of.spec, 2};
}

RC_GTEST_PROP(Order, OfTwoPartsHasEachSampleOnceOnItsSide, ()) {
    const Case of = any_case();
    const double share = *rc::gen::element(0.5, 0.9, 0.01);
    std::vector<std::uint64_t> all;
    for (const SamplePart& part : {SamplePart::first(share), SamplePart::second(share)}) {
        const auto blocks = row_blocks(of.samples, of.block_rows);
        if (samples_in(blocks, part) == 0) continue;
        const EpochOrder order = order_of_part(of, part);
        RC_ASSERT(order.samples() == samples_in(blocks, part));
        RC_ASSERT(samples_in(row_blocks(of.samples, 7), part) == order.samples());
        const std::vector<std::uint64_t> samples = sequence(order);
        for (const std::uint64_t sample : samples) RC_ASSERT(part.holds(sample));
        RC_ASSERT(samples ==
                      samples_of(order, leaf_slice(0, order.samples(), order.lanes(), 0, 1, 1)) ||
                  order.lanes() > 1);
        all.insert(all.end(), samples.begin(), samples.end());
    }
    RC_ASSERT(all.size() == of.samples);
    RC_ASSERT(is_permutation_of_all(all));
}

RC_GTEST_PROP(Order, OfAPartDoesNotDependOnLeaves, ()) {
    const Case of = any_case();
    const SamplePart part = SamplePart::first(0.7);
    RC_PRE(samples_in(row_blocks(of.samples, of.block_rows), part) > 0);
    const EpochOrder order = order_of_part(of, part);
    const auto leaves = *rc::gen::inRange(1, 9);
    const auto cut = *rc::gen::inRange(0, leaves + 1);
    const std::uint64_t end = order.samples();
    auto step = samples_of(order, leaf_slice(0, end, order.lanes(), 0, cut, leaves));
    const auto rest = samples_of(order, leaf_slice(0, end, order.lanes(), cut, leaves, leaves));
    step.insert(step.end(), rest.begin(), rest.end());
    RC_ASSERT(step == samples_of(order, leaf_slice(0, end, order.lanes(), 0, leaves, leaves)));
}

TEST(SamplePart, IsAboutTheShareAndPinned) {
    const std::vector<RowBlock> blocks = row_blocks(100'000, 999);
    for (const double share : {0.9, 0.5, 0.001}) {
        const std::uint64_t first = samples_in(blocks, SamplePart::first(share));
        EXPECT_NEAR(static_cast<double>(first), share * 1e5, 500);
        EXPECT_EQ(first + samples_in(blocks, SamplePart::second(share)), 100'000U);
    }
    std::vector<std::uint64_t> tested;
    for (std::uint64_t sample = 0; sample < 40; ++sample)
        if (SamplePart::second(0.9).holds(sample)) tested.push_back(sample);
    EXPECT_THAT(tested, ElementsAre(10, 34)) << "another hash is another split of every run";
    EXPECT_EQ(samples_in(blocks, {}), 100'000U);
}

RC_GTEST_PROP(Order, LeavesAreNearEqualAndTheFirstIsNeverEmpty, ()) {
    const auto samples = *rc::gen::inRange<std::uint64_t>(1, 1000);
    const auto leaves = *rc::gen::inRange(1, 130);
    RC_ASSERT(leaf_begin(samples, 0, leaves) == 0u);
    RC_ASSERT(leaf_begin(samples, leaves, leaves) == samples);
    RC_ASSERT(leaf_begin(samples, 1, leaves) >= 1u);
    for (int leaf = 0; leaf < leaves; ++leaf) {
        const auto rows = leaf_begin(samples, leaf + 1, leaves) - leaf_begin(samples, leaf, leaves);
        const auto share = samples / static_cast<std::uint64_t>(leaves);
        RC_ASSERT(rows == share || rows == share + 1);
    }
}

RC_GTEST_PROP(Order, WindowsCoverEachLaneWithoutOverlap, ()) {
    const EpochOrder order = order_of(any_case(), 0);
    for (int lane = 0; lane < order.lanes(); ++lane) {
        std::uint64_t position = 0;
        while (position < order.lane_samples(lane)) {
            const LaneRange window = order.window_at(lane, position);
            RC_ASSERT(window.begin == position);
            RC_ASSERT(window.end > position);
            RC_ASSERT(window.size() <= order.max_window_rows());
            RC_ASSERT(order.window_at(lane, window.end - 1) == window);
            position = window.end;
        }
        RC_ASSERT(position == order.lane_samples(lane));
    }
}

RC_GTEST_PROP(Order, WindowsOfALaneBeginAtBlocks, ()) {
    const auto block_rows = *rc::gen::inRange<std::uint32_t>(1, 20);
    const EpochOrder order({row_blocks(std::uint64_t{block_rows} * 100, block_rows)},
                           {OrderKind::lanes, 1, *rc::gen::inRange(1, 8), 3},
                           0);
    for (const LaneRange& window : windows_of(order))
        if (window.begin > 0) RC_ASSERT(order.rows_of(window).front().first % block_rows == 0u);
}

RC_GTEST_PROP(Order, CountsABlockOnceForEachLaneThatHasRowsOfIt, ()) {
    const EpochOrder order = order_of(any_case(), 3);
    std::size_t runs = 0;
    for (const LaneRange& window : windows_of(order)) runs += order.rows_of(window).size();
    RC_ASSERT(order.block_reads() == runs);
}

// As sequence(), but each window is looked at once.
std::vector<std::uint64_t> sequence_by_windows(const EpochOrder& order) {
    const auto lanes = static_cast<std::uint64_t>(order.lanes());
    std::vector<std::uint64_t> sequence(order.samples());
    for (const LaneRange& window : windows_of(order)) {
        const std::vector<std::uint64_t> rows = rows_of(order, window);
        const auto permutation = order.permutation_of(window);
        for (std::uint64_t p = window.begin; p < window.end; ++p)
            sequence[p * lanes + static_cast<std::uint64_t>(window.lane)] =
                rows[permutation[p - window.begin]];
    }
    return sequence;
}

TEST(Order, HoldsForLargeNumbersOfSamples) {
    for (const std::uint64_t samples : {50'000u, 65'537u, 262'145u, 1'281'167u})
        for (const int lanes : {1, 5, 64}) {
            if (samples > 1'000'000 && lanes != 5) continue;  // 64 are in the sweep below
            const EpochOrder order(row_blocks(samples, 256), {OrderKind::lanes, 7, lanes, 4}, 1);
            EXPECT_TRUE(is_permutation_of_all(sequence_by_windows(order)))
                << samples << " samples, " << lanes << " lanes";
        }
}

// The short form of tests/soak/order.
TEST(Order, IsOneSequenceOnAnyNumberOfRanksAlsoWhenResumedOnAnother) {
    for (const std::uint64_t samples : {1u, 7u, 50'000u, 60'000u, 65'537u, 262'145u, 1'281'167u}) {
        const test::SweepResult result = test::sweep_samples(samples, test::SweepSize::small);
        EXPECT_EQ(result.missing, 0u) << samples;
        EXPECT_EQ(result.duplicate, 0u) << samples;
        EXPECT_EQ(result.different, 0u) << samples;
    }
}

TEST(Order, GivesSamplesOfAWindowAsRowsAndPermutationDo) {
    for (const OrderKind kind : {OrderKind::lanes, OrderKind::uniform, OrderKind::sequential}) {
        const EpochOrder order(row_blocks(1000, 16), {kind, 42, 8, 2}, 5);
        for (const LaneRange& window : windows_of(order)) {
            const auto samples = order.samples_of(window);
            ASSERT_EQ(samples.size(), window.size());
            for (std::size_t i = 0; i < samples.size(); ++i)
                EXPECT_EQ(
                    samples[i],
                    order.sample_at((window.begin + i) * static_cast<std::uint64_t>(order.lanes()) +
                                    static_cast<std::uint64_t>(window.lane)));
        }
    }
}

TEST(Order, ChangesWithSeedAndEpochAndUsesAtMostOneLanePerBlock) {
    const auto blocks = row_blocks(500, 8);
    const auto first = sequence({blocks, {OrderKind::lanes, 1, 4, 2}, 0});
    EXPECT_NE(first, sequence({blocks, {OrderKind::lanes, 1, 4, 2}, 1}));
    EXPECT_NE(first, sequence({blocks, {OrderKind::lanes, 2, 4, 2}, 0}));
    EXPECT_NE(first, sequence({blocks, {OrderKind::lanes, 1, 5, 2}, 0}));
    EXPECT_NE(first, sequence({blocks, {OrderKind::lanes, 1, 4, 3}, 0}));
    EXPECT_EQ(first, sequence({blocks, {OrderKind::lanes, 1, 4, 2}, 0}));
    EXPECT_EQ(EpochOrder(row_blocks(100, 50), {OrderKind::lanes, 0, 64, 4}, 0).lanes(), 2);
}

// Pinned: a run resumed with a later version must see the same samples.
TEST(Order, IsPinned) {
    const auto first = [](OrderKind kind) {
        const EpochOrder order(row_blocks(1000, 16), {kind, 42, 8, 2}, 5);
        std::vector<std::uint64_t> samples;
        for (std::uint64_t p = 0; p < 6; ++p) samples.push_back(order.sample_at(p));
        return samples;
    };
    EXPECT_THAT(first(OrderKind::sequential), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(first(OrderKind::lanes), ElementsAre(767, 95, 822, 62, 188, 415));
    EXPECT_THAT(first(OrderKind::uniform), ElementsAre(153, 587, 371, 766, 565, 107));
}

// Labels that come sorted are the worst case: batches must still look like the whole. 256 rows are
// what 'data pack' makes blocks of for 60,000 samples of 784 bytes.
TEST(Order, MixesSortedLabelsAsWellAsAFullShuffle) {
    const auto ratio = [](std::uint32_t block_rows, int window_blocks, std::uint64_t batch) {
        return test::mean_chi_square({.block_rows = block_rows, .batch = batch},
                                     {OrderKind::lanes, 0, 64, window_blocks},
                                     6);
    };
    EXPECT_LE(ratio(256, OrderSpec{}.window_blocks, 256), 1.2);
    EXPECT_LE(ratio(256, 4, 128), 1.2);
    EXPECT_LE(ratio(256, 8, 256), 1.2);
    EXPECT_LE(ratio(512, 4, 256), 1.2);
    EXPECT_GT(ratio(256, 1, 256), 2.0);  // what one block a lane is not enough for
}

}  // namespace
}  // namespace lockstep
