// SPDX-License-Identifier: Apache-2.0
// Gradients that no order of summation forgives, what slots hold of them in tests of exchanges, and
// their sums written down naively.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/random.hpp"

#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::test {

using Floats = std::vector<float>;

inline bool same_bits(const Floats& a, const Floats& b) {
    return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

/// Element `index` of leaf `leaf` in step `step`: both signs, magnitudes from 1e-6 to 1e6.
inline float hard_value(std::uint64_t step, int leaf, std::size_t index) {
    const std::uint64_t bits = mix64(mix64(step * 1000 + static_cast<std::uint64_t>(leaf)) + index);
    const double mantissa = 1.0 + static_cast<double>(bits >> 40) / static_cast<double>(1 << 24);
    const double magnitude = std::pow(10.0, static_cast<double>(bits % 13) - 6.0);
    return static_cast<float>((bits & 32) != 0 ? mantissa * magnitude : -mantissa * magnitude);
}

/// The balanced tree over leaves [first, first + count), `count` a power of two.
template <class Value>
float tree_of(int first, int count, Value&& value) {
    if (count == 1) return value(first);
    const float left = tree_of(first, count / 2, value);
    const float right = tree_of(first + count / 2, count / 2, value);
    return left + right;
}

/// Each rank's leaves one after another, then the ranks in order.
template <class Value>
float plain_sum_of(int ranks, int virtual_ranks, Value&& value) {
    float total = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const LeafRange leaves = leaves_of(rank, ranks, virtual_ranks);
        float mine = value(leaves.begin);
        for (int leaf = leaves.begin + 1; leaf < leaves.end; ++leaf) mine += value(leaf);
        total = rank == 0 ? mine : total + mine;
    }
    return total;
}

/// out[i]: inputs[k][i] of all partials k of `plan`, summed as an owner does.
inline void sum_of_partials(const TreePlan& plan,
                            std::span<const float* const> inputs,
                            float* out,
                            std::size_t count) {
    sum_into(plan.merges_after(), inputs, std::span(&out, 1), count);
}

/// merges_after of the balanced tree over `inputs`; what is left is merged from the right.
inline std::vector<int> balanced_order(int inputs) {
    std::vector<int> merges_after;
    for (unsigned k = 0; k < static_cast<unsigned>(inputs); ++k)
        merges_after.push_back(std::countr_one(k));
    merges_after.back() += std::popcount(static_cast<unsigned>(inputs)) - 1;
    return merges_after;
}

/// What a rank has in the slot of `partial` when its leaves are computed.
inline Floats slot_values(const FlatLayout& layout,
                          const TreePlan& plan,
                          const Partial& partial,
                          std::uint64_t step) {
    const LeafRange leaves = leaves_of(partial.rank, plan.ranks(), plan.virtual_ranks());
    Floats values(layout.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = [&](int leaf) { return hard_value(step, leaf, i); };
        if (plan.summation() == Summation::tree) {
            values[i] = tree_of(partial.first, partial.leaf_count(), value);
            continue;
        }
        values[i] = value(leaves.begin);
        for (int leaf = leaves.begin + 1; leaf < leaves.end; ++leaf) values[i] += value(leaf);
    }
    return values;
}

/// The sum over all leaves in the tree's order.
inline Floats whole_tree(const FlatLayout& layout, int virtual_ranks, std::uint64_t step) {
    Floats values(layout.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = tree_of(0, virtual_ranks, [&](int leaf) { return hard_value(step, leaf, i); });
    return values;
}

}  // namespace lockstep::test
