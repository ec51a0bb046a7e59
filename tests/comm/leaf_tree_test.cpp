// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/leaf_tree.hpp"

#include "lockstep/comm/flat_layout.hpp"

#include "comm/reference.hpp"
#include "support/caught.hpp"

#include <bit>
#include <memory>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::caught_code;
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
        float floats[lockstep::line_floats] = {};
    };
    std::vector<Line> lines_;
};

/// Does what ranks and exchange do, in one thread: leaves into slots, merges, then the sum of
/// partials.
float sum_by_plan(const TreePlan& plan, std::uint64_t step) {
    constexpr std::size_t count = lockstep::line_floats;
    std::vector<std::unique_ptr<Lines>> memory;
    std::vector<const float*> inputs;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        const auto slots = static_cast<std::size_t>(plan.slots());
        const LeafRange leaves = lockstep::leaves_of(rank, plan.ranks(), plan.virtual_ranks());
        const auto slot = [&, first = memory.size()](int i) {
            return memory.at(first + static_cast<std::size_t>(i))->data();
        };
        for (std::size_t i = 0; i < slots; ++i) memory.push_back(std::make_unique<Lines>(count));
        std::vector<Partial> stack;
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            const int height = static_cast<int>(stack.size());
            for (std::size_t i = 0; i < count; ++i) slot(height)[i] = hard_value(step, leaf, 7);
            stack.push_back({leaf, 0, rank, height});
            plan.merge(stack, [&](int into, int from) {
                lockstep::add_into(slot(into), slot(from), count);
            });
        }
        for (const Partial& partial : plan.partials_of_rank(rank))
            inputs.push_back(slot(partial.slot));
    }
    Lines out(count);
    lockstep::test::sum_of_partials(plan, inputs, out.data(), count);
    return out.data()[count - 1];
}

RC_GTEST_PROP(LeafTree, EveryLeafHasExactlyOneRankAndNoRankIsIdle, ()) {
    const Ranks any = any_ranks(10);
    int next = 0;
    for (int rank = 0; rank < any.ranks; ++rank) {
        const LeafRange leaves = lockstep::leaves_of(rank, any.ranks, any.virtual_ranks);
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
        const LeafRange leaves = lockstep::leaves_of(rank, any.ranks, any.virtual_ranks);
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
    const float expected = lockstep::test::tree_of(
        0, any.virtual_ranks, [&](int leaf) { return hard_value(step, leaf, 7); });
    RC_ASSERT(same_bits(sum_by_plan(TreePlan(any.virtual_ranks, any.ranks), step), expected));
}

RC_GTEST_PROP(TreePlan, SumsPlainlyWhenAskedTo, ()) {
    const Ranks any = any_ranks(6);
    const auto step = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const TreePlan plan(any.virtual_ranks, any.ranks, Summation::plain);
    const float expected = lockstep::test::plain_sum_of(
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
    EXPECT_EQ(plan.slots(), 3);
}

TEST(TreePlan, NeedsLittleMoreThanTheLevelsOfTheTree) {
    EXPECT_EQ(TreePlan(1, 1).slots(), 1);
    EXPECT_EQ(TreePlan(4, 4).slots(), 1);
    EXPECT_EQ(TreePlan(4, 2).slots(), 2);
    EXPECT_EQ(TreePlan(256, 1).slots(), 9);
}

TEST(TreePlan, RefusesImpossibleRanks) {
    for (const Ranks& all : {Ranks{4, 5}, {3, 2}, {0, 1}, {4, 0}, {-4, 1}})
        EXPECT_EQ(caught_code([&] { TreePlan(all.virtual_ranks, all.ranks); }), "E640")
            << all.virtual_ranks << " on " << all.ranks;
}

TEST(TreePlan, SuggestsAPossibleNumber) {
    const auto fix_of = [](int virtual_ranks, int ranks) {
        return lockstep::test::error_of([&] { TreePlan(virtual_ranks, ranks); }).fix();
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
        lockstep::test::sum_of_partials(plan, inputs, memory.back().data(), 32);
        EXPECT_EQ(memory.back().data()[31], n * (n + 1) / 2) << ranks;
    }
}

}  // namespace
