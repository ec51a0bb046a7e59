// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/leaf_tree.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/core/random.hpp"

#include "comm/reference.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <numeric>

#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::hard_value;

struct Ranks {
    int virtual_ranks, ranks;
};

Ranks any_ranks(int most_levels) {
    const int virtual_ranks = 1 << *rc::gen::inRange(0, most_levels + 1);
    return {virtual_ranks, *rc::gen::inRange(1, virtual_ranks + 1)};
}

bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// 64-byte aligned floats, as many whole lines as a test needs.
class Lines {
  public:
    explicit Lines(std::size_t count) : lines_((count + 15) / 16) {}
    float* data() { return lines_.front().floats; }

  private:
    struct alignas(64) Line {
        float floats[line_floats] = {};
    };
    std::vector<Line> lines_;
};

/// Does what ranks and exchange do, in one thread: leaves into slots, merges, then the sum of
/// partials.
float sum_by_plan(const TreePlan& plan, std::uint64_t step) {
    constexpr std::size_t count = line_floats;
    std::vector<std::unique_ptr<Lines>> memory;
    std::vector<const float*> inputs;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        const auto slots = static_cast<std::size_t>(plan.slots());
        const LeafRange leaves = leaves_of(rank, plan.ranks(), plan.virtual_ranks());
        const auto slot = [&, first = memory.size()](int i) {
            return memory.at(first + static_cast<std::size_t>(i))->data();
        };
        for (std::size_t i = 0; i < slots; ++i) memory.push_back(std::make_unique<Lines>(count));
        std::vector<Partial> stack;
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            const int height = static_cast<int>(stack.size());
            for (std::size_t i = 0; i < count; ++i) slot(height)[i] = hard_value(step, leaf, 7);
            stack.push_back({leaf, 0, rank, height});
            plan.merge(stack, [&](int into, int from) { add_into(slot(into), slot(from), count); });
        }
        for (const Partial& partial : plan.partials_of_rank(rank))
            inputs.push_back(slot(partial.slot));
    }
    Lines out(count);
    test::sum_of_partials(plan, inputs, out.data(), count);
    return out.data()[count - 1];
}

RC_GTEST_PROP(LeafTree, EveryLeafHasExactlyOneRankAndNoRankIsIdle, ()) {
    const Ranks any = any_ranks(10);
    int next = 0;
    for (int rank = 0; rank < any.ranks; ++rank) {
        const LeafRange leaves = leaves_of(rank, any.ranks, any.virtual_ranks);
        RC_ASSERT(leaves.begin == next);
        RC_ASSERT(leaves.size() >= 1);
        next = leaves.end;
    }
    RC_ASSERT(next == any.virtual_ranks);
}

RC_GTEST_PROP(TreePlan, HasTheMaximalSubtreesOfEveryRankAndEnoughSlots, ()) {
    const Ranks any = any_ranks(10);
    const TreePlan plan(any.virtual_ranks, any.ranks);
    for (int rank = 0; rank < any.ranks; ++rank) {
        const LeafRange leaves = leaves_of(rank, any.ranks, any.virtual_ranks);
        int next = leaves.begin, slot = 0;
        for (const Partial& partial : plan.partials_of_rank(rank)) {
            RC_ASSERT(partial.rank == rank);
            RC_ASSERT(partial.first == next);
            RC_ASSERT(partial.slot == slot++);
            RC_ASSERT(partial.first % partial.leaf_count() == 0);
            const int size = 2 * partial.leaf_count(), parent = partial.first / size * size;
            RC_ASSERT(parent < leaves.begin || parent + size > leaves.end);
            next += partial.leaf_count();
        }
        RC_ASSERT(next == leaves.end);
        RC_ASSERT(slot <= plan.slots());
    }
}

RC_GTEST_PROP(TreePlan, SumsToTheBitsOfTheWholeTreeOnAnyNumberOfRanks, ()) {
    const Ranks any = any_ranks(6);
    const auto step = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const float expected =
        test::tree_of(0, any.virtual_ranks, [&](int leaf) { return hard_value(step, leaf, 7); });
    RC_ASSERT(same_bits(sum_by_plan(TreePlan(any.virtual_ranks, any.ranks), step), expected));
}

RC_GTEST_PROP(TreePlan, SumsPlainlyWhenAskedTo, ()) {
    const Ranks any = any_ranks(6);
    const auto step = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const TreePlan plan(any.virtual_ranks, any.ranks, Summation::plain);
    const float expected = test::plain_sum_of(
        any.ranks, any.virtual_ranks, [&](int leaf) { return hard_value(step, leaf, 7); });
    RC_ASSERT(same_bits(sum_by_plan(plan, step), expected));
    RC_ASSERT(plan.slots() <= 2);
}

TEST(TreePlan, PlainSumsDependOnTheNumberOfRanks) {
    int different = 0;
    for (std::uint64_t step = 0; step < 100; ++step)
        different += !same_bits(sum_by_plan(TreePlan(8, 2, Summation::plain), step),
                                sum_by_plan(TreePlan(8, 3, Summation::plain), step));
    EXPECT_GT(different, 10);
}

TEST(TreePlan, HandsOverSubtreesWhenRanksAreNoPowerOfTwo) {
    const TreePlan plan(8, 3);
    const std::vector<Partial> expected = {
        {0, 1, 0, 0}, {2, 1, 1, 0}, {4, 0, 1, 1}, {5, 0, 2, 0}, {6, 1, 2, 1}};
    EXPECT_EQ(std::vector<Partial>(plan.partials().begin(), plan.partials().end()), expected);
    EXPECT_EQ(plan.slots(), 3) << "little more than the levels of the tree";
    EXPECT_EQ(TreePlan(1, 1).slots(), 1);
    EXPECT_EQ(TreePlan(4, 4).slots(), 1);
    EXPECT_EQ(TreePlan(4, 2).slots(), 2);
    EXPECT_EQ(TreePlan(256, 1).slots(), 9);
}

TEST(TreePlan, RefusesImpossibleRanksAndSuggestsAPossibleNumber) {
    for (const Ranks& all : {Ranks{4, 5}, {3, 2}, {0, 1}, {4, 0}, {-4, 1}})
        EXPECT_EQ(caught_code([&] { TreePlan(all.virtual_ranks, all.ranks); }), "E640")
            << all.virtual_ranks << " on " << all.ranks;
    const auto fix_of = [](int virtual_ranks, int ranks) {
        return test::error_of([&] { TreePlan(virtual_ranks, ranks); }).fix();
    };
    EXPECT_EQ(fix_of(3, 2), "use --virtual-ranks 4");
    EXPECT_EQ(fix_of(3, 6), "use --virtual-ranks 8");
    EXPECT_EQ(fix_of(4, 5), "use at most 4 rank(s), or create the run with --virtual-ranks 8");
}

TEST(TreePlan, SumsMayBeWrittenOverAnInput) {
    for (const int ranks : {2, 3, 4, 8}) {
        const TreePlan plan(8, ranks);
        std::vector<Lines> memory(plan.partials().size(), Lines(32));
        std::vector<const float*> inputs;
        for (std::size_t k = 0; k < memory.size(); ++k) {
            std::fill_n(memory[k].data(), 32, static_cast<float>(k + 1));
            inputs.push_back(memory[k].data());
        }
        const auto n = static_cast<float>(memory.size());
        test::sum_of_partials(plan, inputs, memory.back().data(), 32);
        EXPECT_EQ(memory.back().data()[31], n * (n + 1) / 2) << ranks;
    }
}

/// A layout and the order its tensors must lie in.
struct OrderedLayout {
    std::vector<std::size_t> order;
    FlatLayout layout;
};

OrderedLayout any_layout() {
    const auto counts =
        *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 5000));
    std::vector<std::size_t> order(counts.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    const bool is_default = *rc::gen::arbitrary<bool>();
    if (!is_default)
        shuffle(std::span(order),
                CounterRandom(Purpose::test, {*rc::gen::arbitrary<std::uint64_t>()}));
    const std::vector<std::size_t> given = is_default ? std::vector<std::size_t>() : order;
    const auto state = *rc::gen::inRange<std::size_t>(0, 300);
    const auto first = *rc::gen::inRange<std::size_t>(0, 20000);
    const auto rest = *rc::gen::inRange<std::size_t>(0, 40000);
    return {order, FlatLayout(counts, state, BucketLimits{first, rest}, given)};
}

std::size_t bytes_of(const FloatRange& range) {
    return range.size() * sizeof(float);
}

RC_GTEST_PROP(FlatLayout, BucketsFollowEachOtherAndBeginOnLines, ()) {
    const FlatLayout layout = any_layout().layout;
    std::size_t end = 0;
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
        RC_ASSERT(layout.bucket(b).begin == end);
        end = layout.bucket(b).end;
        RC_ASSERT(end % line_floats == 0);
    }
    RC_ASSERT(end == layout.size());
}

RC_GTEST_PROP(FlatLayout, TensorsLieInTheirBucketsInOrderWithoutOverlap, ()) {
    const auto [order, layout] = any_layout();
    std::vector<std::size_t> found(layout.bucket_count());
    std::size_t end = 0;
    for (const std::size_t i : order) {
        const FloatRange tensor = layout.tensor(i);
        const FloatRange bucket = layout.bucket(layout.bucket_of(i));
        RC_ASSERT(tensor.begin >= end);
        RC_ASSERT(tensor.begin - end < line_floats);
        RC_ASSERT(tensor.begin % line_floats == 0);
        RC_ASSERT(tensor.begin >= bucket.begin);
        RC_ASSERT(tensor.end <= bucket.end);
        ++found[layout.bucket_of(i)];
        end = tensor.end;
    }
    for (std::size_t b = 0; b < found.size(); ++b) RC_ASSERT(found[b] == layout.tensors_in(b));
}

RC_GTEST_PROP(FlatLayout, StripesPartitionEveryBucketOnLines, ()) {
    const FlatLayout layout = any_layout().layout;
    const int ranks = *rc::gen::inRange(1, 20);
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
        std::size_t end = layout.bucket(b).begin, least = layout.size(), most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const FloatRange stripe = layout.stripe(b, rank, ranks);
            RC_ASSERT(stripe.begin == end);
            RC_ASSERT(stripe.end % line_floats == 0);
            end = stripe.end;
            least = std::min(least, stripe.size());
            most = std::max(most, stripe.size());
        }
        RC_ASSERT(end == layout.bucket(b).end);
        RC_ASSERT(most - least <= line_floats);
    }
}

RC_GTEST_PROP(FlatLayout, OnlySingleTensorsExceedTheLimits, ()) {
    const auto counts = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 3000)));
    const BucketLimits limits{4096, 16384};
    const FlatLayout layout(counts, 0, limits);
    for (std::size_t b = 0; b < layout.state_bucket(); ++b) {
        const std::size_t limit = b == 0 ? limits.first_bytes : limits.bytes;
        RC_ASSERT(bytes_of(layout.bucket(b)) <= limit || layout.tensors_in(b) == 1u);
        RC_ASSERT(layout.tensors_in(b) > 0u);
    }
}

TEST(FlatLayout, PutsTheLastTensorFirstAndRefusesAnOrderThatIsNoPermutation) {
    const std::vector<std::size_t> counts = {100, 20, 3};
    const FlatLayout layout(counts, 5);
    EXPECT_EQ(layout.tensor(2), (FloatRange{0, 3}));
    EXPECT_EQ(layout.tensor(1), (FloatRange{16, 36}));
    EXPECT_EQ(layout.tensor(0), (FloatRange{48, 148}));
    EXPECT_EQ(layout.state(), (FloatRange{160, 165}));
    EXPECT_EQ(layout.size(), 176u);
    EXPECT_EQ(layout.bucket_count(), 2u);
    EXPECT_EQ(layout.bucket(layout.state_bucket()), (FloatRange{160, 176}));
    for (const std::vector<std::size_t>& order :
         {std::vector<std::size_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {2, 1, 0, 0}})
        EXPECT_EQ(caught_code([&] { FlatLayout(counts, 0, {}, order); }), "E700");
}

TEST(FlatLayout, GivesALargeTensorABucketOfItsOwnAndNothingAnEmptyOne) {
    const std::vector<std::size_t> counts = {16, 1000, 16};
    const FlatLayout layout(counts, 0, BucketLimits{128, 128});
    EXPECT_EQ(layout.bucket_count(), 4u);
    EXPECT_EQ(layout.tensors_in(1), 1u);
    EXPECT_EQ(layout.bucket(1).size(), 1008u);
    const FlatLayout empty({}, 0);
    EXPECT_EQ(empty.size(), 0u);
    EXPECT_EQ(empty.bucket_count(), 1u);
    EXPECT_EQ(empty.stripe(0, 2, 3).size(), 0u);
}

}  // namespace
