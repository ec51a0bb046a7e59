// SPDX-License-Identifier: Apache-2.0
#include "sums/sum_kernels.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"

#include "comm/reference.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::balanced_order;
using lockstep::test::hard_value;

/// `count` floats that begin `offset` floats after a 64-byte boundary, between guards.
class Guarded {
  public:
    Guarded(std::size_t count, std::size_t offset)
        : count_(count), begin_(line_floats + offset), lines_((begin_ + count) / line_floats + 2) {}

    float* data() { return lines_.front().floats + begin_; }
    const float* data() const { return lines_.front().floats + begin_; }

    /// The same bits.
    bool operator==(const Guarded& other) const {
        return count_ == other.count_ &&
               std::memcmp(data(), other.data(), count_ * sizeof(float)) == 0;
    }
    bool is_unharmed_around() const {
        const auto is_guard = [](float value) { return value == guard; };
        const float* all = lines_.front().floats;
        return std::all_of(all, all + begin_, is_guard) &&
               std::all_of(data() + count_, all + lines_.size() * line_floats, is_guard);
    }

  private:
    static constexpr float guard = 1234.5f;
    struct alignas(64) Line {
        float floats[line_floats];
        Line() { std::fill_n(floats, line_floats, guard); }
    };

    std::size_t count_, begin_;
    std::vector<Line> lines_;
};

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
    std::vector<int> order;
    std::vector<Guarded> inputs;
    std::size_t count;

    std::vector<const float*> from() const {
        std::vector<const float*> pointers;
        for (const Guarded& input : inputs) pointers.push_back(input.data());
        return pointers;
    }
    Guarded by(const SumLoop& loop) const {
        Guarded out(count, 0);
        const std::vector<const float*> pointers = from();
        float* const to = out.data();
        loop.sum({order.data(), pointers.data(), pointers.size(), &to, 1, count});
        return out;
    }
    /// One element after another.
    Guarded expected() const {
        Guarded out(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<float> stack;
            for (std::size_t k = 0; k < inputs.size(); ++k) {
                stack.push_back(inputs[k].data()[i]);
                for (int merges = order[k]; merges > 0; --merges) {
                    const float right = stack.back();
                    stack.pop_back();
                    stack.back() = stack.back() + right;
                }
            }
            out.data()[i] = stack.front();
        }
        return out;
    }
};

/// Up to a few tiles, with any rest, at any alignment of a float.
Sums any_sums(std::vector<int> order) {
    Sums sums{std::move(order), {}, *rc::gen::inRange<std::size_t>(0, 700)};
    const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const auto offset = *rc::gen::inRange<std::size_t>(0, 16);
    for (std::size_t k = 0; k < sums.order.size(); ++k) {
        Guarded& input = sums.inputs.emplace_back(sums.count, offset);
        for (std::size_t i = 0; i < sums.count; ++i)
            input.data()[i] = hard_value(seed, static_cast<int>(k), i);
    }
    return sums;
}

RC_GTEST_PROP(SumLoops, GiveTheReferencesBitsOnEveryInstructionSet, ()) {
    const Sums sums = any_sums(any_order(*rc::gen::inRange(1, 12)));
    const Guarded expected = sums.expected();
    for (const SumLoop& loop : sum_loops()) RC_ASSERT(sums.by(loop) == expected);
}

RC_GTEST_PROP(SumInto, WritesEveryOutputAndNothingBeyond, ()) {
    Sums sums = any_sums(balanced_order(*rc::gen::inRange(1, 10)));
    const Guarded expected = sums.expected();
    Guarded other(sums.count, 3);
    std::vector<float*> outputs = {other.data()};
    for (Guarded& input : sums.inputs) outputs.push_back(input.data());
    sum_into(sums.order, sums.from(), outputs, sums.count);
    RC_ASSERT(other == expected);
    for (const Guarded& input : sums.inputs) RC_ASSERT(input == expected);
    RC_ASSERT(other.is_unharmed_around());
    for (const Guarded& input : sums.inputs) RC_ASSERT(input.is_unharmed_around());
}

RC_GTEST_PROP(SumInto, TakesTheOrderOfTheTreeWhereRanksAreAPowerOfTwo, ()) {
    const int ranks = 1 << *rc::gen::inRange(0, 8);
    const TreePlan plan(ranks, ranks);
    const std::vector<int> order = balanced_order(ranks);
    RC_ASSERT(std::ranges::equal(order, plan.merges_after()));
}

TEST(SumInto, RefusesWhatIsNoOrder) {
    const float value = 1;
    float sum = 0;
    float* const out = &sum;
    for (const std::vector<int>& order : {std::vector<int>{0, 0}, {0, 2}, {1, 1}, {0}, {0, 1, 1}}) {
        const std::vector<const float*> inputs = {&value, &value};
        EXPECT_THROW(sum_into(order, inputs, std::span(&out, 1), 1), Error);
    }
}

}  // namespace
