// SPDX-License-Identifier: Apache-2.0
// Floating-point addition is not associative, so "the sum of the gradients" has definite bits only
// together with an order. Here the order is one tree over V leaves, V a power of two, and ranks
// only divide its leaves among themselves. With V = 8 on P = 3 ranks:
//
//                0-7                   rank 0 computes leaves 0 1     its partials: 0-1
//           +-----+-----+              rank 1 computes leaves 2 3 4                 2-3, 4
//          0-3         4-7             rank 2 computes leaves 5 6 7                 5, 6-7
//        +--+--+     +--+--+
//       0-1   2-3   4-5   6-7          merges_after, partial by partial: 0 1 0 1 2
//       +-+   +-+   +-+   +-+
//       0 1   2 3   4 5   6 7          4 and 5 are siblings on two ranks: they stay apart until
//       r0 |   rank 1 | rank 2         somebody has both
//
// A rank adds each complete subtree of its own and passes on the partials unchanged. Any rank may
// add those (an owner on one node, rails between nodes: rail_plan.cpp): the additions are the same.
//
// What must never happen: two numbers are added that are not siblings. The sum would look right,
// within any tolerance, but P would then decide bits. Hence a partial names its leaves, and every
// addition takes its order from merges_after().
//
// Tested: comm/leaf_tree_test.cpp, whose properties compare with the tree written down directly,
// for random V and P; whole runs on 1 to 4 ranks: e2e/verify_test.cpp.

#include "lockstep/comm/leaf_tree.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/core/error.hpp"

#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <fmt/format.h>

namespace lockstep {

LeafRange leaves_of(int rank, int ranks, int virtual_ranks) {
    const auto boundary = [&](std::int64_t r) {
        return static_cast<int>(virtual_ranks * r / ranks);
    };
    return {boundary(rank), boundary(rank + 1)};
}

TreePlan::TreePlan(int virtual_ranks, int ranks, Summation summation)
    : virtual_ranks_(virtual_ranks), ranks_(ranks), summation_(summation) {
    const auto above = std::bit_ceil(static_cast<unsigned>(std::max({virtual_ranks, ranks, 1})));
    check(virtual_ranks > 0 && std::has_single_bit(static_cast<unsigned>(virtual_ranks)),
          "E640",
          fmt::format("{} virtual ranks are not a power of two", virtual_ranks),
          "they are the leaves of a binary tree, in whose order gradients are summed",
          fmt::format("use --virtual-ranks {}", above));
    check(ranks > 0 && ranks <= virtual_ranks,
          "E640",
          fmt::format("{} virtual ranks cannot run on {} ranks", virtual_ranks, ranks),
          "every rank needs a virtual rank of its own",
          fmt::format("use at most {} rank(s), or create the run with --virtual-ranks {}",
                      virtual_ranks,
                      above));
    for (int rank = 0; rank < ranks; ++rank) add_rank(rank);
    first_of_rank_.push_back(partials_.size());

    std::vector<Partial> stack;
    for (const Partial& partial : partials_) {
        stack.push_back(partial);
        merges_after_.push_back(merge(stack, [](int, int) {}));
    }
    expect(stack.size() == 1, "all partials merge into one");
}

void TreePlan::add_rank(int rank) {
    const LeafRange leaves = leaves_of(rank, ranks_, virtual_ranks_);
    std::vector<Partial> stack;
    for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        stack.push_back({leaf, 0, rank, static_cast<int>(stack.size())});
        slots_ = std::max(slots_, static_cast<int>(stack.size()));
        merge(stack, [](int, int) {});
    }
    first_of_rank_.push_back(partials_.size());
    partials_.insert(partials_.end(), stack.begin(), stack.end());
}

std::span<const Partial> TreePlan::partials_of_rank(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(partials_).subspan(first_of_rank_[r],
                                        first_of_rank_[r + 1] - first_of_rank_[r]);
}

void add_into(float* into, const float* from, std::size_t count) {
    constexpr std::array left_to_right = {0, 1};
    expect(count % line_floats == 0, "whole lines");
    const std::array<const float*, 2> both = {into, from};
    const std::array<float*, 1> to = {into};
    sum_into(left_to_right, both, to, count);
}

}  // namespace lockstep
