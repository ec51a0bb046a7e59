// SPDX-License-Identifier: Apache-2.0
// The messages of a bucket: from all ranks to the owners, who sum their stripes, and from the
// owners back to all. Pure functions.
//
// Over several nodes of G GPUs each, a stripe's partials would come to its owner from every GPU of
// the others, G times what a ring sends over the network. If a node's leaves are one subtree, its
// GPUs add them first, each the stripes of those owners who have its place in their nodes:
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

/// Ranks that combine partials of stripes. Each rank receives the others' data for its part of a
/// stripe.
struct StripeTeam {
    int rank = 0, of = 0;  ///< the member whose work this is, and the number of all ranks
    std::vector<int> ranks;
    std::vector<std::vector<int>> stripes;  ///< by place in `ranks`: its part, by owner
    std::vector<Partial> partials;          ///< left to right, in slots of ranks of the team
    std::vector<int> merges_after;          ///< as TreePlan's, for `partials`
};

/// Returns the teams of `rank` in order; after the last one it has the sum of its own stripe.
/// `hosts`: by rank, equal on one node. There is one team of all ranks; or one inside the node,
/// with sums in slot 0, and one of the ranks with the same place on other nodes.
std::vector<StripeTeam> stripe_teams(const TreePlan& plan,
                                     int rank,
                                     std::span<const std::string> hosts);

/// A message with one of a rank's partials of a stripe.
struct StripeSend {
    int peer = 0;
    int slot = 0;      ///< slot of the sender
    FloatRange range;  ///< the stripe, in the flat vector
    bool operator==(const StripeSend&) const = default;
};

/// The arrival of such a message, among those received for the bucket.
struct StripeReceive {
    int peer = 0;
    FloatRange place;  ///< in floats from the first one received
    bool operator==(const StripeReceive&) const = default;
};

/// The sum of a stripe, from partials in this rank's slots and from received ones, which are
/// contiguous.
struct StripeSum {
    FloatRange range;          ///< the stripe, in the flat vector; the sum comes into slot 0
    std::size_t received = 0;  ///< place of the first received one, in floats
    bool operator==(const StripeSum&) const = default;
};

/// The work of a rank for one bucket in one team. The n-th send from one rank to another is the
/// n-th receive there. Empty stripes move nothing.
struct StripeMoves {
    std::vector<StripeSend> sends;
    std::vector<StripeReceive> receives;
    std::vector<StripeSum> sums;
};
StripeMoves stripe_moves(const FlatLayout& layout, const StripeTeam& team, std::size_t bucket);

/// Returns the floats of the largest bucket's receives.
std::size_t most_received(const FlatLayout& layout, std::span<const StripeTeam> teams);

/// Returns the messages with values of a bucket that a rank sends to and receives from others of
/// its team; in reverse order of teams all ranks get all values. `slot` is 0, `place` the stripe in
/// the flat vector.
StripeMoves value_moves(const FlatLayout& layout, const StripeTeam& team, std::size_t bucket);

}  // namespace lockstep
