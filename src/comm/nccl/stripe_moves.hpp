// SPDX-License-Identifier: Apache-2.0
// Which bytes of a bucket travel to whom before owners can sum their stripes. Pure functions.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// One of a rank's partials of a stripe, on its way to the stripe's owner.
struct StripeSend {
    int owner = 0;
    int slot = 0;      ///< of the sender
    FloatRange range;  ///< the stripe, in the flat vector
    bool operator==(const StripeSend&) const = default;
};

/// And its arrival: the owner keeps what it receives one behind another, left to right.
struct StripeReceive {
    int rank = 0;           ///< the sender
    std::size_t place = 0;  ///< from 0
    bool operator==(const StripeReceive&) const = default;
};

/// By owner, then left to right. To owners of an empty stripe, and to itself, a rank sends nothing.
std::vector<StripeSend> stripe_sends(const FlatLayout& layout,
                                     const TreePlan& plan,
                                     int rank,
                                     std::size_t bucket);

/// What `rank` receives of each bucket in which its stripe is not empty. Of two ranks, the n-th
/// send of one to the other is the n-th receive there.
std::vector<StripeReceive> stripe_receives(const TreePlan& plan, int rank);

}  // namespace lockstep
