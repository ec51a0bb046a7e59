// SPDX-License-Identifier: Apache-2.0
// Which bytes of a bucket travel to whom so that owners can sum their stripes, and from owners back
// to all. Pure functions.
//
// Over several nodes of G GPUs each, a stripe's partials would come to its owner from every GPU of
// the others, G times what a ring sends over the network. Where a node's leaves are one subtree,
// its GPUs add them first, each the stripes of those owners who have its place in their nodes:
//
//     node 0   GPU 0: stripes 0, 2   GPU 1: stripes 1, 3      inside: the node's partial of each
//     node 1   GPU 2: stripes 0, 2   GPU 3: stripes 1, 3
//                 |                     |
//     between: 0 <-> 2 exchange stripes 0 and 2, 1 <-> 3 stripes 1 and 3
//
// Each rank moves as many bytes as before, and a node only 1/G of them over the network.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Ranks that bring partials of stripes together. Of each stripe that is `rank`'s part, it gets
/// what the others have.
struct StripeTeam {
    std::vector<int> ranks;
    std::vector<std::vector<int>> stripes;  ///< by place in `ranks`: its part, by owner
    std::vector<Partial> partials;          ///< left to right, in slots of ranks of the team
    std::vector<int> merges_after;          ///< as TreePlan's, of `partials`
};

/// The teams that `rank` is in, one after the other; in the end it has the sum of its own stripe.
/// `hosts`: by rank, equal on one node. One team of all ranks, or one inside the node, whose sums
/// are in slot 0, and one of those who have its place on other nodes.
std::vector<StripeTeam> stripe_teams(const TreePlan& plan,
                                     int rank,
                                     std::span<const std::string> hosts);

/// One of a rank's partials of a stripe, on its way.
struct StripeSend {
    int peer = 0;
    int slot = 0;      ///< of the sender
    FloatRange range;  ///< the stripe, in the flat vector
    bool operator==(const StripeSend&) const = default;
};

/// And its arrival, among what is received of the bucket.
struct StripeReceive {
    int peer = 0;
    FloatRange place;  ///< in floats from the first one received
    bool operator==(const StripeReceive&) const = default;
};

/// A stripe's sum, of partials in this rank's slots and of those received, one behind another.
struct StripeSum {
    FloatRange range;          ///< the stripe, in the flat vector; the sum comes into slot 0
    std::size_t received = 0;  ///< where its first one is, in floats
    bool operator==(const StripeSum&) const = default;
};

/// What a rank does for one bucket in one team. Of two ranks, the n-th send of one to the other is
/// the n-th receive there. Empty stripes move nothing.
struct StripeMoves {
    std::vector<StripeSend> sends;
    std::vector<StripeReceive> receives;
    std::vector<StripeSum> sums;
};
StripeMoves stripe_moves(const FlatLayout& layout,
                         const TreePlan& plan,
                         const StripeTeam& team,
                         int rank,
                         std::size_t bucket);

/// Floats of the largest bucket's receives.
std::size_t most_received(const FlatLayout& layout,
                          const TreePlan& plan,
                          std::span<const StripeTeam> teams,
                          int rank);

/// Values of a bucket that `rank` has and others of the team get, and that it gets from them: the
/// teams in reverse order give everybody all. `slot` is 0, `place` the stripe in the flat vector.
StripeMoves value_moves(const FlatLayout& layout,
                        const TreePlan& plan,
                        const StripeTeam& team,
                        int rank,
                        std::size_t bucket);

}  // namespace lockstep
