// SPDX-License-Identifier: Apache-2.0
// What slots hold in tests of exchanges, and what the exchange must make of it.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"

#include "comm/reference.hpp"

#include <cstdint>
#include <vector>

namespace lockstep::test {

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
