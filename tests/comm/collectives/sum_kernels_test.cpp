// SPDX-License-Identifier: Apache-2.0
#include "collectives/sum_kernels.hpp"

#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"

#include "collectives/sum_loops.hpp"
#include "comm/collectives/elements.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;

DataType any_type() {
    return *rc::gen::elementOf(
        std::vector<DataType>(all_data_types().begin(), all_data_types().end()));
}

/// An order that is any tree over `inputs`, not only a balanced one.
std::vector<int> any_order(int inputs) {
    std::vector<int> order;
    int height = 0;
    for (int k = 0; k < inputs; ++k) {
        const bool is_last = k + 1 == inputs;
        order.push_back(is_last ? height : *rc::gen::inRange(0, height + 1));
        height += 1 - order.back();
    }
    return order;
}

struct Sums {
    DataType type;
    std::vector<int> order;
    std::vector<Elements> inputs;
    std::size_t count;

    std::vector<const void*> from() const {
        std::vector<const void*> pointers;
        for (const Elements& input : inputs) pointers.push_back(input.data());
        return pointers;
    }
    Elements by(const SumLoop& loop) const {
        Elements out(type, count, 0);
        const std::vector<const void*> pointers = from();
        void* const to = out.data();
        loop.sum({type, order.data(), pointers.data(), pointers.size(), &to, 1, count});
        return out;
    }
};

/// Up to a few tiles, with any rest, at any alignment that suits the element.
Sums any_sums(std::vector<int> order) {
    Sums sums{any_type(), std::move(order), {}, *rc::gen::inRange<std::size_t>(0, 700)};
    const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const auto offset = *rc::gen::inRange<std::size_t>(0, 40);
    for (std::size_t k = 0; k < sums.order.size(); ++k)
        sums.inputs.push_back(
            hard_elements(sums.type, sums.count, offset, seed, static_cast<int>(k)));
    return sums;
}

RC_GTEST_PROP(SumLoops, GiveTheReferencesBitsOnEveryInstructionSet, ()) {
    const Sums sums = any_sums(any_order(*rc::gen::inRange(1, 12)));
    const Elements expected = sum_by_elements(sums.order, sums.inputs);
    for (const SumLoop& loop : sum_loops()) RC_ASSERT(sums.by(loop) == expected);
}

RC_GTEST_PROP(SumInto, WritesEveryOutputAndNothingBeyond, ()) {
    Sums sums = any_sums(balanced_order(*rc::gen::inRange(1, 10)));
    const Elements expected = sum_by_elements(sums.order, sums.inputs);
    Elements other(sums.type, sums.count, 3);
    std::vector<void*> outputs = {other.data()};
    for (Elements& input : sums.inputs) outputs.push_back(input.data());
    sum_into(sums.type, sums.order, sums.from(), outputs, sums.count);
    RC_ASSERT(other == expected);
    for (const Elements& input : sums.inputs) RC_ASSERT(input == expected);
    RC_ASSERT(other.is_unharmed_around());
    for (const Elements& input : sums.inputs) RC_ASSERT(input.is_unharmed_around());
}

RC_GTEST_PROP(SwapThrough, TakesOutWhatWasInTheBoxAndPutsInTheNew, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(0, 700);
    const auto offset = *rc::gen::inRange<std::size_t>(0, 40);
    const Elements before = hard_elements(DataType::bfloat16, count, 0, 1, 0);
    const Elements in = hard_elements(DataType::bfloat16, count, offset, 1, 1);
    for (const SumLoop& loop : sum_loops()) {
        Elements box = before, out(DataType::bfloat16, count, offset), both = in;
        loop.swap_through({in.data(), box.data(), out.data(), in.bytes()});
        RC_ASSERT(out == before);
        RC_ASSERT(box == in);
        loop.swap_through({both.data(), out.data(), both.data(), both.bytes()});
        RC_ASSERT(both == before);
        RC_ASSERT(out == in);
        RC_ASSERT(out.is_unharmed_around() && box.is_unharmed_around());
    }
}

RC_GTEST_PROP(BalancedOrder, IsTheTreeOverLeavesWhereRanksAreAPowerOfTwo, ()) {
    const int ranks = 1 << *rc::gen::inRange(0, 8);
    const TreePlan plan(ranks, ranks);
    const std::vector<int> order = balanced_order(ranks);
    RC_ASSERT(std::ranges::equal(order, plan.merges_after()));
}

TEST(BalancedOrder, MergesWhatIsLeftFromTheRight) {
    EXPECT_EQ(balanced_order(1), std::vector<int>({0}));
    EXPECT_EQ(balanced_order(3), std::vector<int>({0, 1, 1}));
    EXPECT_EQ(balanced_order(6), std::vector<int>({0, 1, 0, 2, 0, 2}));
    EXPECT_EQ(balanced_order(7), std::vector<int>({0, 1, 0, 2, 0, 1, 2}));
}

TEST(SumInto, RoundsBrainFloatsOnceToNearestEven) {
    struct Case {
        std::vector<std::uint16_t> inputs;
        std::uint16_t sum;
    };
    const std::uint16_t one = 0x3f80, half_unit = 0x3b80;  // 2^-8: half of the last place of 1
    const std::uint16_t infinity = 0x7f80, largest = 0x7f7f, narrow_nan = 0x7f81;
    const Case cases[] = {{{one, half_unit}, one},
                          {{0x3f81, half_unit}, 0x3f82},
                          {{half_unit, half_unit, one}, 0x3f81},
                          {{largest, largest}, infinity},
                          {{infinity, static_cast<std::uint16_t>(infinity | 0x8000)}, 0x7fc0},
                          {{narrow_nan, one}, 0x7fc0}};
    for (const Case& c : cases) {
        std::vector<const void*> inputs;
        for (const std::uint16_t& value : c.inputs) inputs.push_back(&value);
        std::uint16_t sum = 0;
        void* const out = &sum;
        sum_into(DataType::bfloat16,
                 balanced_order(static_cast<int>(inputs.size())),
                 inputs,
                 std::span(&out, 1),
                 1);
        EXPECT_EQ(sum, c.sum) << c.inputs.front();
    }
}

TEST(SumInto, LetsIntegersWrap) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max(), one = 1;
    const std::vector<const void*> inputs = {&most, &one};
    std::int64_t sum = 0;
    void* const out = &sum;
    sum_into(DataType::int64, balanced_order(2), inputs, std::span(&out, 1), 1);
    EXPECT_EQ(sum, std::numeric_limits<std::int64_t>::min());
}

TEST(SumInto, RefusesWhatIsNoOrder) {
    const float value = 1;
    float sum = 0;
    void* const out = &sum;
    for (const std::vector<int>& order : {std::vector<int>{0, 0}, {0, 2}, {1, 1}, {0}, {0, 1, 1}}) {
        const std::vector<const void*> inputs = {&value, &value};
        EXPECT_THROW(sum_into(DataType::float32, order, inputs, std::span(&out, 1), 1), Error);
    }
}

}  // namespace
