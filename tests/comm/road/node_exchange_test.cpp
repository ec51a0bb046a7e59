// SPDX-License-Identifier: Apache-2.0
// The exchange of gradients with ranks grouped into nodes in every way, on whatever hosts they are.
#include "lockstep/comm/reducer.hpp"

#include "comm/reference.hpp"
#include "road/nodes.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;

constexpr int virtual_ranks = 8;

/// A name and the node that a rank is taken to be on; ranks of one host only.
struct Grouping {
    const char* name;
    int (*node_of)(int rank);
};
const std::vector<Grouping> groupings = {
    {"one node", [](int) { return 0; }},
    {"each alone", [](int rank) { return rank; }},
    {"pairs", [](int rank) { return rank / 2; }},
    {"threes", [](int rank) { return rank / 3; }},
    {"in turn over two", [](int rank) { return rank % 2; }},
    {"in turn over three", [](int rank) { return rank % 3; }},
    {"one and the rest", [](int rank) { return rank == 0 ? 0 : 1; }},
    {"the rest and one", [](int rank) { return rank < 5 ? 7 : rank; }},
};

/// Faked nodes where all ranks are on one host, the hosts otherwise.
std::vector<std::pair<std::string, Nodes>> all_nodes() {
    std::vector<std::pair<std::string, Nodes>> all;
    const Nodes real(ranks(), node_by_memory(ranks()));
    all.emplace_back("hosts", real);
    all.emplace_back("each alone", Nodes(ranks(), ranks().rank()));
    if (real.count() > 1) return all;
    for (const Grouping& grouping : groupings)
        all.emplace_back(grouping.name, Nodes(ranks(), grouping.node_of(ranks().rank())));
    return all;
}

std::vector<std::size_t> small_model() {
    return {900, 40, 16, 2000, 1, 0, 700};
}
/// 7 MiB in tensors of 0.2 to 1.6 MiB.
std::vector<std::size_t> large_model() {
    std::vector<std::size_t> counts;
    for (std::size_t i = 1; i <= 8; ++i) counts.push_back(i * 50000 + i);
    return counts;
}

/// Few values over and over: cheap enough for large models.
class Pattern {
  public:
    template <class Value>
    explicit Pattern(Value&& value) {
        for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = value(i);
    }

    void fill(float* memory, std::size_t count) const {
        for_each_part(count, [&](std::size_t at, std::size_t size) {
            std::memcpy(memory + at, values_.data(), size * sizeof(float));
        });
    }
    std::size_t wrong(const float* memory, std::size_t count) const {
        std::size_t parts = 0;
        for_each_part(count, [&](std::size_t at, std::size_t size) {
            parts += std::memcmp(memory + at, values_.data(), size * sizeof(float)) != 0;
        });
        return parts;
    }

  private:
    template <class Act>
    void for_each_part(std::size_t count, Act&& act) const {
        for (std::size_t at = 0; at < count; at += values_.size())
            act(at, std::min(values_.size(), count - at));
    }
    std::array<float, 997> values_;
};

class Training {
  public:
    Training(Nodes nodes,
             const std::vector<std::size_t>& counts,
             BucketLimits limits,
             ShardState shards,
             Summation how = Summation::tree)
        : layout(counts, 50, limits),
          plan(virtual_ranks, ranks().size(), how),
          exchange(ranks().size() == 1
                       ? make_exchange(ranks(), layout, plan)
                       : make_node_exchange(std::move(nodes), layout, plan, shards)),
          reducer(layout, plan, ranks().rank(), *exchange) {}

    void run_step(std::uint64_t step) {
        const LeafRange leaves = leaves_of(ranks().rank(), ranks().size(), virtual_ranks);
        reducer.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            float* slot = reducer.begin_leaf();
            Pattern([&](std::size_t i) {
                return hard_value(step, leaf, i);
            }).fill(slot, layout.size());
            for (std::size_t tensor = layout.tensor_count(); tensor-- > 0;) reducer.add(tensor);
            reducer.end_leaf();
        }
        reducer.finish();
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = exchange->own_stripe(b);
            std::copy_n(reducer.reduced(b), own.size(), exchange->values() + own.begin);
        }
        exchange->publish();
    }

    /// Parts of values() that are not the sum over all leaves.
    std::size_t wrong(std::uint64_t step) const {
        const Pattern sums([&](std::size_t i) {
            const auto leaf_value = [&](int leaf) { return hard_value(step, leaf, i); };
            return plan.summation() == Summation::tree
                       ? test::tree_of(0, virtual_ranks, leaf_value)
                       : test::plain_sum_of(ranks().size(), virtual_ranks, leaf_value);
        });
        return sums.wrong(exchange->values(), layout.size());
    }

    FlatLayout layout;
    TreePlan plan;
    std::unique_ptr<Exchange> exchange;
    Reducer reducer;
};

class NodeExchange : public testing::TestWithParam<ShardState> {};
INSTANTIATE_TEST_SUITE_P(Shards,
                         NodeExchange,
                         testing::Values(ShardState::node, ShardState::all),
                         [](const auto& instance) {
                             return instance.param == ShardState::all ? "All" : "Node";
                         });

TEST_P(NodeExchange, HasTheBitsOfTheWholeTreeForAnyNodesAndSmallBuckets) {
    std::uint64_t step = 0;
    for (const auto& [name, nodes] : all_nodes())
        for (const std::size_t limit : {64u, 1024u, 1u << 20}) {
            Training training(nodes, small_model(), {limit, limit}, GetParam());
            for (int repeat = 0; repeat < 3; ++repeat) {
                training.run_step(++step);
                EXPECT_EQ(training.wrong(step), 0u) << name << ", buckets of " << limit;
            }
        }
}

TEST_P(NodeExchange, HasTheBitsOfTheWholeTreeForLargeBuckets) {
    if (ranks().size() == 1 && GetParam() == ShardState::all) return;  // one rank shares nothing
    for (const auto& [name, nodes] : all_nodes())
        for (const std::size_t limit : {64u << 10, 1u << 20, 25u << 20, 1u << 30}) {
            if (limit != 25u << 20 && name != "hosts") continue;
            Training training(nodes, large_model(), {limit, limit}, GetParam());
            for (const std::uint64_t step : {1, 2}) {
                training.run_step(step);
                EXPECT_EQ(training.wrong(step), 0u) << name << ", buckets of " << limit;
            }
        }
}

TEST_P(NodeExchange, SumsPlainlyWhenAskedTo) {
    for (const auto& [name, nodes] : all_nodes()) {
        Training training(nodes, small_model(), {1024, 4096}, GetParam(), Summation::plain);
        training.run_step(3);
        EXPECT_EQ(training.wrong(3), 0u) << name;
    }
}

TEST_P(NodeExchange, StripesOfANodeOrOfAllAreEveryBucketOnce) {
    for (const auto& [name, nodes] : all_nodes()) {
        const Training training(nodes, small_model(), {1024, 4096}, GetParam());
        std::vector<std::int64_t> copies(training.layout.size()), saved(training.layout.size());
        for (std::size_t b = 0; b < training.layout.bucket_count(); ++b) {
            const FloatRange own = training.exchange->own_stripe(b);
            for (std::size_t i = own.begin; i < own.end; ++i) {
                copies[i] = 1;
                saved[i] = training.exchange->is_first_copy() ? 1 : 0;
            }
        }
        ranks().all_reduce_sum(copies);
        ranks().all_reduce_sum(saved);
        const int owners = GetParam() == ShardState::all ? 1 : nodes.count();
        EXPECT_EQ(copies, std::vector<std::int64_t>(copies.size(), owners)) << name;
        EXPECT_EQ(saved, std::vector<std::int64_t>(saved.size(), 1)) << name;
    }
}

// A line more or less, for each bucket.
TEST_P(NodeExchange, OwnersOfARailHaveEqualParts) {
    LOCKSTEP_NEEDS_RANKS(2);
    for (const auto& [name, nodes] : all_nodes()) {
        const Training training(nodes, {9000, 30'000, 7}, {1 << 16, 1 << 16}, GetParam());
        if (!nodes.has_rail()) continue;
        std::size_t owned = 0;
        for (std::size_t b = 0; b < training.layout.bucket_count(); ++b)
            owned += training.exchange->own_stripe(b).size();
        const int owners = nodes.rails() * (GetParam() == ShardState::all ? nodes.count() : 1);
        EXPECT_NEAR(static_cast<double>(owned),
                    static_cast<double>(training.layout.size()) / owners,
                    static_cast<double>(line_floats * training.layout.bucket_count()))
            << name;
    }
}

TEST_P(NodeExchange, TimesMessagesOfOtherNodes) {
    for (const auto& [name, nodes] : all_nodes()) {
        Training training(nodes, {400'000, 400'000}, {1 << 20, 1 << 20}, GetParam());
        for (std::uint64_t step = 1; step <= 3; ++step) {
            training.run_step(step);
            EXPECT_EQ(training.wrong(step), 0u) << name;
        }
        const std::vector<LinkTimes> links = training.exchange->take_links();
        EXPECT_EQ(!links.empty(), nodes.count() > 1 && nodes.has_rail()) << name;
        for (const LinkTimes& times : links) {
            EXPECT_NE(nodes.node_of(times.from), nodes.index()) << name;
            EXPECT_EQ(nodes.local_rank_of(times.from), nodes.local().rank()) << name;
            EXPECT_GE(times.bytes, static_cast<std::uint64_t>(times.messages) * (128 << 10));
            EXPECT_GT(times.messages, 0);
            EXPECT_GT(times.seconds, 0);
        }
        EXPECT_TRUE(training.exchange->take_links().empty());
    }
}

}  // namespace
