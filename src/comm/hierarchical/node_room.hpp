// SPDX-License-Identifier: Apache-2.0
// Whether every node has room for its window, agreed by all ranks.
#pragma once

#include "hierarchical/nodes.hpp"

#include <cstddef>
#include <functional>

namespace lockstep {

/// Collective. Fails on all ranks where one node lacks the room. `bytes`: of this node's window.
/// Errors: E632.
void check_room_everywhere(const Nodes& nodes, std::size_t bytes);

/// Collective. The ranks' nodes, or each rank alone where some node lacks the room for its window,
/// of which `bytes_of` says the size. That is said once: ranks send messages then, which is slower,
/// but sharing memory is not worth failing for.
Nodes nodes_with_room(const Communicator& ranks,
                      const std::function<std::size_t(const Nodes&)>& bytes_of);

}  // namespace lockstep
