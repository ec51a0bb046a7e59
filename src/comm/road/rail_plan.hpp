// SPDX-License-Identifier: Apache-2.0
// Plans of sums between the owners of one stripe, one on each node: the parts of a fixed order of
// additions that each can sum, and the messages. Pure functions.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Several pieces that add up to the larger piece `whole` in the tree's own order.
struct Combination {
    int whole = 0;
    std::vector<std::size_t> from;  ///< positions in the list of pieces, in the tree's order
    std::vector<int> merges_after;  ///< for sum_into()
};

/// The binary tree of an order of additions. A piece is a complete subtree: input k is piece k.
class SumTree {
  public:
    /// `merges_after`: as for sum_into().
    explicit SumTree(std::span<const int> merges_after);

    int root() const { return static_cast<int>(sums_.size()) - 1; }

    /// Returns the fewest pieces to which the disjoint `pieces` add up, in the tree's order. Pieces
    /// with a sibling elsewhere stay single.
    std::vector<Combination> combine(std::span<const int> pieces) const;

  private:
    struct Sum {
        int left = -1, right = -1;  ///< -1: an input
    };

    std::vector<Sum> sums_;  ///< inputs first, then each after its parts
};

/// A part of the floats: `index` of `of`; 0 of 0 is none.
struct Share {
    int index = 0, of = 0;
    bool operator==(const Share&) const = default;
    static const Share none, low, high, all;
};
inline constexpr Share Share::none{0, 0}, Share::low{0, 2}, Share::high{1, 2}, Share::all{0, 1};

/// Returns that part of `range`, by part_of().
FloatRange share_of(FloatRange range, Share share);

/// One exchange with one other node. On the way in, every piece's `sends` goes to the peer, the
/// pieces' `keeps` of the node `from` arrive, and both are added. On the way out, in reverse order,
/// the finished `keeps` goes to the peer and `sends` comes back, unless both have all of it.
struct RailStep {
    int peer = 0, from = 0;  ///< the same node, except with RailKind::to_owners
    Share sends = Share::none, keeps = Share::none;
    int received = 0;               ///< number of pieces of `from`
    std::vector<Combination> sums;  ///< sums of own pieces, then the received ones
};

enum class RailKind {
    short_message,  ///< every step exchanges everything: few messages
    long_message,   ///< every step halves: least bytes
    to_owners,      ///< node i of n gets the sum of share i of n: no way out
};

/// Recursive halving, nearest node first, then doubling (Thakur, Rabenseifner, Gropp 2005). Nodes
/// beyond a power of two give their pieces to a neighbour before and get the result afterwards. To
/// owners, all steps are one, with the sums of the last: each node sends every other one its pieces
/// of that one's share.
struct RailPlan {
    RailKind kind = RailKind::long_message;
    std::vector<Combination> own;  ///< of this node's inputs, in the order of their numbers
    std::vector<RailStep> steps;   ///< none for one node: `own` is the whole sum
    int root = 0;                  ///< the piece that is the whole sum

    bool is_one_step() const { return kind == RailKind::to_owners; }
};

/// Makes the plan of node `node` of `nodes`; `node_of_input[k]` holds input k of `tree`. Another
/// `turn` pairs other nodes: the sum is the same, with more pieces if neighbours in the tree do not
/// meet first. To owners, it is the first step that pairs other nodes.
RailPlan make_rail_plan(const SumTree& tree,
                        std::span<const int> node_of_input,
                        int node,
                        int nodes,
                        RailKind kind,
                        int turn = 0);

}  // namespace lockstep
