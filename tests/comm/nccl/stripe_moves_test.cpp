// SPDX-License-Identifier: Apache-2.0
// Which messages carry stripes; and the kernel's own source on the host, thread by thread, against
// the sum of the CPU's exchanges: equal bits.
#include "nccl/stripe_moves.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/random.hpp"

#include "base/aligned_floats.hpp"
#include "comm/nccl/fake_cuda.hpp"
#include "comm/reference.hpp"
#include "nccl/nccl_group.hpp"
#include "nccl/tree_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using Counts = std::vector<std::size_t>;

/// Ranks in order, so many on each node; 0: all on one.
std::vector<std::string> hosts_of(int ranks, int of_a_node = 0) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < ranks; ++rank)
        hosts.push_back(fmt::format("node{}", of_a_node > 0 ? rank / of_a_node : 0));
    return hosts;
}

struct Sent {
    std::size_t all = 0, between_nodes = 0;  ///< floats
};

/// What all ranks together send, so that owners can sum the buckets, or all get the values.
template <class Moves>
Sent floats_sent(const FlatLayout& layout,
                 const TreePlan& plan,
                 const std::vector<std::string>& hosts,
                 Moves&& moves) {
    Sent sent;
    for (int rank = 0; rank < plan.ranks(); ++rank)
        for (const StripeTeam& team : stripe_teams(plan, rank, hosts))
            for (std::size_t b = 0; b < layout.bucket_count(); ++b)
                for (const StripeSend& send : moves(layout, team, b).sends) {
                    sent.all += send.range.size();
                    const auto at = [&](int r) { return hosts[static_cast<std::size_t>(r)]; };
                    if (at(rank) != at(send.peer)) sent.between_nodes += send.range.size();
                }
    return sent;
}

/// How often more than a ring's reduce-scatter and all-gather; an all-gather costs both the same.
double share_of_ring(const FlatLayout& layout, const TreePlan& plan, int of_a_node = 0) {
    const auto others = static_cast<double>(plan.ranks() - 1) * static_cast<double>(layout.size());
    const auto sent = floats_sent(layout, plan, hosts_of(plan.ranks(), of_a_node), stripe_moves);
    return (static_cast<double>(sent.all) + others) / (2 * others);
}

/// A million floats in buckets that no number of ranks divides.
FlatLayout large_layout() {
    return {Counts{300000, 12345, 77, 400001, 1, 290000}, 100, BucketLimits{1 << 18, 1 << 20}};
}

using Sends = std::vector<StripeSend>;
using Receives = std::vector<StripeReceive>;
using Sums = std::vector<StripeSum>;

TEST(StripeMoves, SendEachPartialToEachOtherOwner) {
    const FlatLayout layout(Counts{48}, 0);
    const TreePlan plan(8, 3);  // partials 0-1 | 2-3, 4 | 5, 6-7
    const auto moves = [&](int rank) {
        const auto teams = stripe_teams(plan, rank, hosts_of(3));
        EXPECT_EQ(teams.size(), 1u);
        return stripe_moves(layout, teams.front(), 0);
    };
    EXPECT_EQ(moves(0).sends, (Sends{{1, 0, {16, 32}}, {2, 0, {32, 48}}}));
    EXPECT_EQ(moves(1).sends,
              (Sends{{0, 0, {0, 16}}, {0, 1, {0, 16}}, {2, 0, {32, 48}}, {2, 1, {32, 48}}}));
    EXPECT_EQ(moves(0).receives,
              (Receives{{1, {0, 16}}, {1, {16, 32}}, {2, {32, 48}}, {2, {48, 64}}}));
    EXPECT_EQ(moves(1).receives, (Receives{{0, {0, 16}}, {2, {16, 32}}, {2, {32, 48}}}));
    EXPECT_EQ(moves(1).sums, (Sums{{{16, 32}, 0}}));
}

TEST(StripeMoves, AddInsideANodeFirst) {
    const FlatLayout layout(Counts{64}, 0);
    const TreePlan plan(8, 4);
    const auto teams = stripe_teams(plan, 1, hosts_of(4, 2));
    ASSERT_EQ(teams.size(), 2u);
    const StripeMoves inside = stripe_moves(layout, teams[0], 0);
    EXPECT_EQ(inside.sends, (Sends{{0, 0, {0, 16}}, {0, 0, {32, 48}}}));
    EXPECT_EQ(inside.receives, (Receives{{0, {0, 16}}, {0, {16, 32}}}));
    EXPECT_EQ(inside.sums, (Sums{{{16, 32}, 0}, {{48, 64}, 16}}));
    const StripeMoves between = stripe_moves(layout, teams[1], 0);
    EXPECT_EQ(between.sends, (Sends{{3, 0, {48, 64}}}));
    EXPECT_EQ(between.receives, (Receives{{3, {0, 16}}}));
    EXPECT_EQ(between.sums, (Sums{{{16, 32}, 0}}));
}

TEST(StripeMoves, AreOneTeamsWhereNodesAreNoSubtrees) {
    const auto teams = [](const TreePlan& plan, const std::vector<std::string>& hosts) {
        return stripe_teams(plan, 0, hosts).size();
    };
    EXPECT_EQ(teams(TreePlan(8, 8), hosts_of(8, 4)), 2u);
    EXPECT_EQ(teams(TreePlan(8, 6), hosts_of(6, 3)), 2u);
    EXPECT_EQ(teams(TreePlan(8, 6), hosts_of(6, 2)), 1u);  // three nodes
    EXPECT_EQ(teams(TreePlan(8, 8), hosts_of(8)), 1u);
    EXPECT_EQ(teams(TreePlan(8, 8), hosts_of(8, 1)), 1u);
    EXPECT_EQ(teams(TreePlan(8, 8), hosts_of(8, 5)), 1u);
    EXPECT_EQ(teams(TreePlan(8, 4), {"a", "b", "a", "b"}), 1u);
    EXPECT_EQ(teams(TreePlan(8, 4), {"a", "a", "b", "c"}), 1u);
    EXPECT_EQ(teams(TreePlan(8, 4, Summation::plain), hosts_of(4, 2)), 1u);
}

TEST(StripeMoves, SendNothingToOwnersOfNothing) {
    const FlatLayout layout(Counts{16}, 0);
    const TreePlan plan(4, 4);
    const StripeTeam of_3 = stripe_teams(plan, 3, hosts_of(4)).front();
    const StripeTeam of_0 = stripe_teams(plan, 0, hosts_of(4)).front();
    EXPECT_EQ(stripe_moves(layout, of_3, 0).sends.size(), 0u);
    EXPECT_EQ(stripe_moves(layout, of_0, 0).sends.size(), 1u);
    EXPECT_EQ(stripe_moves(layout, of_0, layout.state_bucket()).sends.size(), 0u);
}

RC_GTEST_PROP(StripeMoves, PairEverySendWithAReceive, ()) {
    const int virtual_ranks = 1 << *rc::gen::inRange(0, 7);
    const TreePlan plan(virtual_ranks, *rc::gen::inRange(1, virtual_ranks + 1));
    const auto hosts = hosts_of(plan.ranks(), *rc::gen::inRange(0, 9));
    const FlatLayout layout(Counts{*rc::gen::inRange<std::size_t>(1, 3000)}, 0);
    for (const auto moves_of : {&stripe_moves, &value_moves}) {
        std::map<std::pair<int, int>, std::vector<std::size_t>> sent, received;
        for (int rank = 0; rank < plan.ranks(); ++rank) {
            const auto teams = stripe_teams(plan, rank, hosts);
            RC_ASSERT(teams.size() == stripe_teams(plan, 0, hosts).size());
            for (std::size_t i = 0; i < teams.size(); ++i) {
                const StripeMoves moves = moves_of(layout, teams[i], 0);
                for (const StripeSend& send : moves.sends)
                    sent[{rank, send.peer}].push_back(send.range.size());
                for (const StripeReceive& receive : moves.receives)
                    received[{receive.peer, rank}].push_back(receive.place.size());
            }
        }
        RC_ASSERT(sent == received);
    }
}

TEST(StripeMoves, CostNoMoreThanARingWhereRanksDivideLeaves) {
    const FlatLayout layout = large_layout();
    for (const int virtual_ranks : {8, 64, 256})
        for (int ranks = 2; ranks <= virtual_ranks; ranks *= 2)
            for (const int of_a_node : {0, 2, 4, 8})
                EXPECT_EQ(share_of_ring(layout, TreePlan(virtual_ranks, ranks), of_a_node), 1.0)
                    << ranks << " ranks, " << virtual_ranks << " leaves";
}

// A ring goes over each node's border once: a reduce-scatter sends each node's part (N - 1) / N of
// the bucket there and back, and so does an all-gather.
TEST(StripeMoves, GoOverTheNetworkAsOftenAsARing) {
    const FlatLayout layout = large_layout();
    for (const auto& [ranks, of_a_node] : {std::pair{4, 2}, {16, 8}, {64, 8}, {12, 3}}) {
        const TreePlan plan(64, ranks);
        const auto hosts = hosts_of(ranks, of_a_node);
        const auto ideal = static_cast<std::size_t>(ranks / of_a_node - 1) * layout.size();
        EXPECT_EQ(floats_sent(layout, plan, hosts, value_moves).between_nodes, ideal);
        EXPECT_EQ(floats_sent(layout, plan, hosts, stripe_moves).between_nodes, ideal)
            << ranks << " ranks";
    }
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

// Two stripes, of the second two parts of rank 0.
TEST(AwaitedParts, AreTheLastOfEachRank) {
    std::vector<float> room(80);
    const StripeMoves moves{
        .receives = {{0, {0, 16}}, {2, {16, 32}}, {0, {32, 48}}, {0, {48, 64}}, {2, {64, 80}}},
        .sums = {{{0, 16}, 0}, {{32, 48}, 32}}};
    const auto parts = awaited_parts(moves, room.data());
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].peer, 0);
    EXPECT_EQ(parts[0].last, room.data() + 63);
    EXPECT_EQ(parts[1].peer, 2);
    EXPECT_EQ(parts[1].last, room.data() + 79);
}

// Never one's own values: those are sent.
TEST(AwaitedParts, OfAPublicationAreValuesOfAllOthersThatOwnSome) {
    const FlatLayout layout(Counts{900, 40, 2000, 1}, 3, BucketLimits{1024, 1024});
    const std::size_t last_bucket = layout.bucket_count() - 1;
    ASSERT_EQ(layout.bucket(last_bucket).size(), 16u) << "one rank owns all of it";
    std::vector<float> values(layout.size());
    const TreePlan plan(8, 3);
    for (int rank = 0; rank < 3; ++rank) {
        const StripeTeam team = stripe_teams(plan, rank, hosts_of(3)).front();
        const auto parts = awaited_values(layout, team, values.data());
        EXPECT_EQ(parts.size(), 2u);
        for (const auto& [peer, last] : parts) {
            EXPECT_NE(peer, rank);
            bool is_peers = false;
            for (std::size_t b = 0; b <= last_bucket; ++b)
                is_peers |= values.data() + layout.stripe(b, peer, 3).end - 1 == last;
            EXPECT_TRUE(is_peers);
        }
        EXPECT_NE(parts[0].peer, parts[1].peer);
    }
}

constexpr std::array rare_values = {0.0f,
                                    -0.0f,
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::denorm_min(),
                                    -std::numeric_limits<float>::min(),
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::lowest()};

/// One sum of a stripe, as its owner has it before its eyes.
class RandomSum {
  public:
    explicit RandomSum(std::uint64_t number)
        : random_(Purpose::test, {number}),
          plan_(make_plan()),
          count_(line_floats * below(20)),
          memory_(make_aligned_floats(plan_.partials().size() * count_ + 1)) {
        const auto own = plan_.partials_of_rank(
            static_cast<int>(below(static_cast<std::uint64_t>(plan_.ranks()))));
        const auto own_first = own.data() - plan_.partials().data();
        fill(number);
        launch_ = {.own_pitch = static_cast<std::int64_t>(count_),
                   .received_pitch = static_cast<std::int64_t>(count_),
                   .merges_after = plan_.merges_after().data(),
                   .own_first = static_cast<std::int32_t>(own_first),
                   .own_count = static_cast<std::int32_t>(own.size()),
                   .partials = static_cast<std::int32_t>(plan_.partials().size()),
                   .count = static_cast<std::int64_t>(count_)};
    }

    /// In place, over the first of the owner's own partials.
    std::vector<float> by_kernel() {
        std::vector<float> own, received;
        for (std::int32_t k = 0; k < launch_.partials; ++k) {
            const bool is_own = k >= launch_.own_first && k < launch_.own_first + launch_.own_count;
            auto& to = is_own ? own : received;
            to.insert(to.end(), partial(k), partial(k) + count_);
        }
        launch_.own = launch_.out = own.data();
        launch_.received = received.data();
        test::run_on_host(launch_);
        return {own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count_)};
    }

    std::vector<float> by_exchanges() {
        std::vector<const float*> inputs;
        for (std::int32_t k = 0; k < launch_.partials; ++k) inputs.push_back(partial(k));
        const auto out = make_aligned_floats(count_ + 1);
        test::sum_of_partials(plan_, inputs, out.get(), count_);
        return {out.get(), out.get() + count_};
    }

    /// One partial after the other: no tree.
    std::vector<float> from_the_left() {
        std::vector<float> sum(partial(0), partial(0) + count_);
        for (std::int32_t k = 1; k < launch_.partials; ++k)
            for (std::size_t i = 0; i < count_; ++i) sum[i] += partial(k)[i];
        return sum;
    }

  private:
    std::uint64_t below(std::uint64_t end) { return random_.below(end); }
    TreePlan make_plan() {
        const int virtual_ranks = 1 << below(8);
        return {virtual_ranks, 1 + static_cast<int>(below(static_cast<unsigned>(virtual_ranks)))};
    }
    float* partial(std::int32_t k) const {
        return memory_.get() + static_cast<std::size_t>(k) * count_;
    }
    /// Mostly hard to add; one in 64 of no ordinary kind.
    void fill(std::uint64_t number) {
        for (std::size_t i = 0; i < plan_.partials().size() * count_; ++i)
            memory_[i] = below(64) == 0 ? rare_values[below(rare_values.size())]
                                        : test::hard_value(number, 0, i);
    }

    CounterRandom random_;
    const TreePlan plan_;
    const std::size_t count_;
    const AlignedFloats memory_;
    TreeSumLaunch launch_;
};

/// Any NaN is as good as another: which payload survives an addition is the processor's choice.
bool is_same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
}

std::size_t different(const std::vector<float>& a, const std::vector<float>& b) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += is_same(a[i], b[i]) ? 0 : 1;
    return count;
}

TEST(TreeSumOfAGpu, HasTheBitsOfTheExchangesSumInEveryCase) {
    std::size_t floats = 0, nans = 0, unlike_plain = 0;
    for (std::uint64_t number = 0; number < 10000; ++number) {
        RandomSum sum(number);
        const std::vector<float> expected = sum.by_exchanges(), got = sum.by_kernel();
        ASSERT_EQ(different(got, expected), 0u) << "case " << number;
        floats += expected.size();
        nans += static_cast<std::size_t>(
            std::ranges::count_if(expected, [](float v) { return std::isnan(v); }));
        unlike_plain += different(got, sum.from_the_left());
    }
    // The cases are worth something: there were NaNs and others, and another order shows.
    EXPECT_GT(nans, floats / 50);
    EXPECT_LT(nans, floats * 3 / 4);
    EXPECT_GT(unlike_plain, floats / 10);
}

TEST(TreeSumOfAGpu, AddsNothingWhereThereIsOnePartial) {
    std::vector<float> own = {-0.0f, std::numeric_limits<float>::denorm_min()};
    const int none = 0;
    test::run_on_host({.own = own.data(),
                       .merges_after = &none,
                       .own_count = 1,
                       .partials = 1,
                       .out = own.data(),
                       .count = 2});
    EXPECT_TRUE(is_same(own[0], -0.0f));
    EXPECT_TRUE(is_same(own[1], std::numeric_limits<float>::denorm_min()));
}

TEST(TreeSumOfAGpu, StridesOverMoreElementsThanAGridHasThreads) {
    const std::int64_t count = 3000;
    const std::vector<float> own(count, 1), received(count, 2);
    std::vector<float> out(count, -1);
    const std::array merges = {0, 1};
    const TreeSumLaunch launch{.own = own.data(),
                               .received = received.data(),
                               .merges_after = merges.data(),
                               .own_count = 1,
                               .partials = 2,
                               .out = out.data(),
                               .count = count};
    for (const int block : {1, 0})
        for (int thread = 0; thread < threads_of_block; ++thread)
            tree_sum_thread(launch, block, thread, 2, threads_of_block);
    EXPECT_EQ(std::ranges::count(out, 3.0f), count);
}

}  // namespace
