// SPDX-License-Identifier: Apache-2.0
// The implementation of make_exchange() for several ranks.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include "road/nodes.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// Collective over all ranks of `nodes`. Slots and values of a node are in one window that its
/// ranks share; between nodes stripes travel in messages. One node: only shared memory; one rank
/// per node: only messages. Errors: E632 no room for the window.
std::unique_ptr<Exchange> make_node_exchange(Nodes nodes,
                                             const FlatLayout& layout,
                                             const TreePlan& plan,
                                             ShardState shards = ShardState::node);

/// Returns the size of this rank's window.
std::size_t node_window_bytes(const Nodes& nodes, const FlatLayout& layout, const TreePlan& plan);

}  // namespace lockstep
