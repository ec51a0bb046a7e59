// SPDX-License-Identifier: Apache-2.0
#include "nccl/stripe_moves.hpp"

#include <map>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

/// Floats that all ranks together send, so that owners can sum the buckets.
std::size_t floats_sent(const FlatLayout& layout, const TreePlan& plan) {
    std::size_t floats = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank)
        for (std::size_t b = 0; b < layout.bucket_count(); ++b)
            for (const StripeSend& send : stripe_sends(layout, plan, rank, b))
                floats += send.range.size();
    return floats;
}

/// How often more than a ring's reduce-scatter and all-gather; an all-gather costs both the same.
double share_of_ring(const FlatLayout& layout, const TreePlan& plan) {
    const auto others = static_cast<double>(plan.ranks() - 1) * static_cast<double>(layout.size());
    return (static_cast<double>(floats_sent(layout, plan)) + others) / (2 * others);
}

/// A million floats in buckets that no number of ranks divides.
FlatLayout large_layout() {
    const std::vector<std::size_t> counts = {300000, 12345, 77, 400001, 1, 290000};
    return {counts, 100, BucketLimits{1 << 18, 1 << 20}};
}

TEST(StripeMoves, SendEachPartialToEachOtherOwner) {
    const std::vector<std::size_t> counts = {48};
    const FlatLayout layout(counts, 0);
    const TreePlan plan(8, 3);  // partials 0-1 | 2-3, 4 | 5, 6-7
    using Sends = std::vector<StripeSend>;
    EXPECT_EQ(stripe_sends(layout, plan, 0, 0), (Sends{{1, 0, {16, 32}}, {2, 0, {32, 48}}}));
    EXPECT_EQ(stripe_sends(layout, plan, 1, 0),
              (Sends{{0, 0, {0, 16}}, {0, 1, {0, 16}}, {2, 0, {32, 48}}, {2, 1, {32, 48}}}));
    using Receives = std::vector<StripeReceive>;
    EXPECT_EQ(stripe_receives(plan, 0), (Receives{{1, 0}, {1, 1}, {2, 2}, {2, 3}}));
    EXPECT_EQ(stripe_receives(plan, 1), (Receives{{0, 0}, {2, 1}, {2, 2}}));
}

TEST(StripeMoves, SendNothingToOwnersOfNothing) {
    const std::vector<std::size_t> counts = {16};
    const FlatLayout layout(counts, 0);
    const TreePlan plan(4, 4);
    EXPECT_EQ(stripe_sends(layout, plan, 3, 0).size(), 0u);
    EXPECT_EQ(stripe_sends(layout, plan, 0, 0).size(), 1u);
    EXPECT_EQ(stripe_sends(layout, plan, 0, layout.state_bucket()).size(), 0u);
}

RC_GTEST_PROP(StripeMoves, PairEverySendWithAReceive, ()) {
    const int virtual_ranks = 1 << *rc::gen::inRange(0, 7);
    const TreePlan plan(virtual_ranks, *rc::gen::inRange(1, virtual_ranks + 1));
    const std::vector<std::size_t> counts = {*rc::gen::inRange<std::size_t>(1, 3000)};
    const FlatLayout layout(counts, 0);
    std::map<std::pair<int, int>, int> unmatched;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        for (const StripeSend& send : stripe_sends(layout, plan, rank, 0))
            ++unmatched[{rank, send.owner}];
        if (layout.stripe(0, rank, plan.ranks()).size() == 0) continue;
        for (const StripeReceive& receive : stripe_receives(plan, rank))
            --unmatched[{receive.rank, rank}];
    }
    for (const auto& [pair, count] : unmatched) RC_ASSERT(count == 0);
}

TEST(StripeMoves, CostNoMoreThanARingWhereRanksDivideLeaves) {
    const FlatLayout layout = large_layout();
    for (const int virtual_ranks : {8, 64, 256})
        for (int ranks = 2; ranks <= virtual_ranks; ranks *= 2)
            EXPECT_EQ(share_of_ring(layout, TreePlan(virtual_ranks, ranks)), 1.0)
                << ranks << " ranks, " << virtual_ranks << " leaves";
}

// The table of docs/nccl.md.
TEST(StripeMoves, CostMoreByPartialsThatHaveNoSiblingAtHome) {
    const FlatLayout layout = large_layout();
    const std::map<std::pair<int, int>, double> shares = {{{8, 3}, 1.33},
                                                          {{8, 5}, 1.10},
                                                          {{8, 6}, 1.00},
                                                          {{8, 7}, 1.00},
                                                          {{64, 3}, 2.33},
                                                          {{64, 5}, 2.20},
                                                          {{64, 6}, 2.00},
                                                          {{64, 7}, 2.07},
                                                          {{64, 12}, 1.67},
                                                          {{64, 24}, 1.33},
                                                          {{64, 40}, 1.10},
                                                          {{64, 48}, 1.00}};
    for (const auto& [leaves_and_ranks, share] : shares) {
        const TreePlan plan(leaves_and_ranks.first, leaves_and_ranks.second);
        EXPECT_NEAR(share_of_ring(layout, plan), share, 0.005)
            << leaves_and_ranks.second << " ranks, " << leaves_and_ranks.first << " leaves";
        const auto partials = static_cast<double>(plan.partials().size());
        EXPECT_NEAR(share_of_ring(layout, plan), (1 + partials / plan.ranks()) / 2, 1e-3);
    }
}

}  // namespace
