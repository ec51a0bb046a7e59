// SPDX-License-Identifier: Apache-2.0
// Which parts of a fixed order of additions can be summed where, and who sends what to whom when
// the owners of one stripe, one on each node, sum it: pure functions.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

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

/// A part of the floats that a node is still concerned with.
enum class Share { none, low, high, all };

/// The part of `range` that is meant; halves meet at a 64-byte line counted from its begin.
FloatRange share_of(FloatRange range, Share share);

/// One exchange with one other node. On the way in: every piece's `sends` goes to the peer, its
/// pieces' `keeps` come from there, and both add up. On the way out, in reverse order, the finished
/// `keeps` goes to the peer and `sends` comes back, unless both have all of it.
struct RailStep {
    int peer = 0;
    Share sends = Share::none, keeps = Share::none;
    int received = 0;               ///< the peer's pieces
    std::vector<Combination> sums;  ///< of own pieces, then the peer's
};

enum class RailKind {
    short_message,  ///< every step exchanges everything: few messages
    long_message,   ///< every step halves: least bytes
};

/// Recursive halving, nearest node first, then doubling (Thakur, Rabenseifner, Gropp 2005). Nodes
/// beyond a power of two hand their pieces to a neighbour before and get the result after.
struct RailPlan {
    std::vector<Combination> own;  ///< of this node's inputs, in the order of their numbers
    std::vector<RailStep> steps;   ///< none for one node: `own` is the whole sum
    int root = 0;                  ///< the piece that is the whole sum
};

/// For node `node` of `nodes`; `node_of_input[k]` holds input k of `tree`. With another `turn`
/// other nodes meet: the same sum, of more pieces where neighbours in the tree do not meet first.
RailPlan make_rail_plan(const SumTree& tree,
                        std::span<const int> node_of_input,
                        int node,
                        int nodes,
                        RailKind kind,
                        int turn = 0);

}  // namespace lockstep
