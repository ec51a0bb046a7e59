// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exchange.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "exchanges.hpp"
#include "one_node.hpp"
#include "shared_window.hpp"

namespace lockstep {
namespace {

/// Collective. Every rank a node of its own: no memory is shared.
Nodes each_alone(const Communicator& ranks) {
    return Nodes(ranks, ranks.rank());
}

/// Collective. Fails on all ranks where one node lacks the room.
void check_room_everywhere(const Nodes& nodes, std::size_t bytes) {
    agree(nodes.all(), [&] {
        if (nodes.local().size() > 1 && nodes.local().is_root()) check_shared_room(bytes);
    });
}

/// Collective. Sharing memory is faster, but not worth failing for.
Nodes nodes_with_room(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    Nodes nodes(ranks, node_by_memory(ranks));
    try {
        check_room_everywhere(nodes, node_window_bytes(nodes, layout, plan));
        return nodes;
    } catch (const AgreedError& error) {
        if (error.code() != "E632") throw;
        once(Level::warn,
             "{}; ranks send messages instead, which is slower ({})",
             error.what(),
             error.fix());
        return each_alone(ranks);
    }
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport) {
    expect(plan.ranks() == ranks.size(), "the plan is for these ranks");
    if (ranks.size() == 1) return make_single_exchange(layout, plan);
    if (transport == Transport::automatic)
        return make_node_exchange(nodes_with_room(ranks, layout, plan), layout, plan);
    if (transport == Transport::mpi) return make_node_exchange(each_alone(ranks), layout, plan);
    Nodes nodes(ranks, node_by_memory(ranks));
    if (transport == Transport::shared_memory) check_one_node(nodes.count() == 1, ranks);
    check_room_everywhere(nodes, node_window_bytes(nodes, layout, plan));
    return make_node_exchange(std::move(nodes), layout, plan);
}

}  // namespace lockstep
