// SPDX-License-Identifier: Apache-2.0
// Which parts of a fixed order of additions can be summed where: what nodes hand to each other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Some pieces, added up to the larger piece `whole` in the tree's own order.
struct Combination {
    int whole = 0;
    std::vector<std::size_t> from;  ///< positions in the list of pieces, as the tree orders them
    std::vector<int> merges_after;  ///< for sum_into()
};

/// The binary tree that an order of additions is. A piece is a complete subtree, by number: input k
/// is piece k.
class SumTree {
  public:
    /// As for sum_into().
    explicit SumTree(std::span<const int> merges_after);

    int root() const { return static_cast<int>(sums_.size()) - 1; }

    /// The fewest pieces that the disjoint `pieces` add up to, in the tree's order. Pieces with a
    /// sibling elsewhere stay single.
    std::vector<Combination> combine(std::span<const int> pieces) const;

  private:
    struct Sum {
        int left = -1, right = -1;  ///< -1: an input
    };
    class Walk;

    std::vector<Sum> sums_;  ///< inputs first, then each after its parts
};

/// The wholes of `combinations`.
std::vector<int> wholes_of(std::span<const Combination> combinations);

}  // namespace lockstep
