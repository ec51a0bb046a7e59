// SPDX-License-Identifier: Apache-2.0
#include "hierarchical/node_room.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/shared_window.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep {

void check_room_everywhere(const Nodes& nodes, std::size_t bytes) {
    agree(nodes.all(), [&] {
        if (nodes.local().size() > 1 && nodes.local().is_root()) check_shared_room(bytes);
    });
}

Nodes nodes_with_room(const Communicator& ranks,
                      const std::function<std::size_t(const Nodes&)>& bytes_of) {
    Nodes nodes(ranks, node_by_memory(ranks));
    try {
        check_room_everywhere(nodes, bytes_of(nodes));
        return nodes;
    } catch (const AgreedError& error) {
        if (kind_of(error) != ErrorKind::no_shared_memory) throw;
        once(Level::warn,
             "{}; ranks send messages instead, which is slower ({})",
             error.what(),
             error.fix());
        return each_alone(ranks);
    }
}

}  // namespace lockstep
