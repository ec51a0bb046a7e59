// SPDX-License-Identifier: Apache-2.0
// Whether every node has room for its window, agreed by all ranks.
#pragma once

#include "hierarchical/nodes.hpp"

#include <cstddef>

namespace lockstep {

/// Collective. Fails on all ranks where one node lacks the room. `bytes`: of this node's window.
/// Errors: E632.
void check_room_everywhere(const Nodes& nodes, std::size_t bytes);

/// Collective. The same answer on all ranks; says so once where there is no room, because ranks
/// send messages then, which is slower.
bool has_room_everywhere(const Nodes& nodes, std::size_t bytes);

}  // namespace lockstep
