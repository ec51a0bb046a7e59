// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_product.hpp"

#include "lockstep/core/random.hpp"

#include "leaves/product_loops.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using Floats = std::vector<float>;

/// Leaves of `rows` each; `leaves` of them, from leaf `first` of a tree.
struct Case {
    std::size_t left_columns, right_columns, rows, leaves;
};

Floats numbers(std::size_t count, std::uint64_t key) {
    CounterRandom random(Purpose::test, {key});
    Floats values(count);
    for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
    return values;
}

std::vector<std::size_t> ends_of(const Case& c) {
    std::vector<std::size_t> ends;
    for (std::size_t leaf = 1; leaf <= c.leaves; ++leaf) ends.push_back(leaf * c.rows);
    return ends;
}

std::vector<int> merges_of(std::size_t leaves) {
    std::vector<int> merges;
    for (std::size_t leaf = 0; leaf < leaves; ++leaf)
        merges.push_back(std::countr_one(static_cast<unsigned>(leaf)));
    return merges;
}

/// As the definition says it, one element at a time.
std::vector<Floats> reference(const Case& c, const Floats& left, const Floats& right) {
    std::vector<Floats> stack;
    for (std::size_t leaf = 0; leaf < c.leaves; ++leaf) {
        Floats sum(c.left_columns * c.right_columns, 0.0F);
        for (std::size_t k = leaf * c.rows; k < (leaf + 1) * c.rows; ++k)
            for (std::size_t i = 0; i < c.left_columns; ++i)
                for (std::size_t j = 0; j < c.right_columns; ++j) {
                    float& element = sum[i * c.right_columns + j];
                    element = std::fma(
                        left[k * c.left_columns + i], right[k * c.right_columns + j], element);
                }
        stack.push_back(sum);
        for (int merge = merges_of(c.leaves)[leaf]; merge > 0; --merge) {
            const Floats top = stack.back();
            stack.pop_back();
            for (std::size_t i = 0; i < top.size(); ++i) stack.back()[i] += top[i];
        }
    }
    return stack;
}

std::vector<Floats> with(const ProductLoop& loop,
                         const Case& c,
                         const Floats& left,
                         const Floats& right) {
    std::vector<Floats> sums(reference(c, left, right).size(),
                             Floats(c.left_columns * c.right_columns, NAN));
    std::vector<float*> outputs;
    for (Floats& sum : sums) outputs.push_back(sum.data());
    const auto ends = ends_of(c);
    const auto merges = merges_of(c.leaves);
    const ProductTask task{.left = left.data(),
                           .left_stride = c.left_columns,
                           .left_columns = c.left_columns,
                           .right = right.data(),
                           .right_stride = c.right_columns,
                           .right_columns = c.right_columns,
                           .leaf_ends = ends.data(),
                           .merges_after = merges.data(),
                           .leaves = c.leaves,
                           .outputs = outputs.data(),
                           .output_count = outputs.size()};
    Floats packed((c.left_columns + loop.tile_rows) * ends.back());
    Floats panel(loop.tile_columns * ends.back());
    loop.pack_left(task, packed.data());
    for (std::size_t j = 0; j < c.right_columns; j += loop.tile_columns)
        loop.multiply(task, packed.data(), panel.data(), j);
    return sums;
}

const std::vector<Case> cases = {{1, 1, 1, 1},
                                 {3, 5, 4, 8},
                                 {6, 64, 4, 16},
                                 {7, 65, 2, 5},
                                 {13, 130, 9, 3},
                                 {64, 31, 1, 7},
                                 {10, 40, 64, 2}};

TEST(LeafProduct, HasTheBitsOfItsDefinitionWithEveryInstructionSet) {
    for (const Case& c : cases) {
        const Floats left = numbers(c.rows * c.leaves * c.left_columns, 1);
        const Floats right = numbers(c.rows * c.leaves * c.right_columns, 2);
        const std::vector<Floats> expected = reference(c, left, right);
        for (const ProductLoop* loop : product_loops())
            EXPECT_EQ(with(*loop, c, left, right), expected)
                << loop->instruction_set << ", " << c.left_columns << " x " << c.right_columns;
        std::vector<Floats> sums(expected.size(), Floats(expected[0].size(), NAN));
        std::vector<float*> outputs;
        for (Floats& sum : sums) outputs.push_back(sum.data());
        leaf_product({left.data(), c.left_columns},
                     {right.data(), c.right_columns},
                     ends_of(c),
                     merges_of(c.leaves),
                     outputs);
        EXPECT_EQ(sums, expected);
    }
}

TEST(LeafProduct, KeepsNumbersThatAreNotFinite) {
    const Floats left = {1, INFINITY, 1, 1}, right = {1, 1, NAN, 1};
    Floats sum(4);
    float* const output = sum.data();
    const std::size_t ends = 2;
    const int merges = 0;
    leaf_product({left.data(), 2}, {right.data(), 2}, {&ends, 1}, {&merges, 1}, {&output, 1});
    EXPECT_TRUE(std::isnan(sum[0]));
    EXPECT_EQ(sum[1], 2);
    EXPECT_TRUE(std::isnan(sum[2]));
    EXPECT_EQ(sum[3], INFINITY);
}

}  // namespace
