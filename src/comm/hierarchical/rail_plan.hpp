// SPDX-License-Identifier: Apache-2.0
// Who sends what to whom when the owners of one stripe, one on each node, sum it: pure functions.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "hierarchical/sum_tree.hpp"

#include <span>
#include <vector>

namespace lockstep {

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
