// SPDX-License-Identifier: Apache-2.0
// Which way gradients travel. Every transport is one class, NodeExchange
// (hierarchical/node_exchange.cpp); a transport is only another answer to "which ranks share
// memory" (a rank alone has none):
//
//     shared memory   { 0 1 2 3 }                one node
//     hierarchical    { 0 1 } { 2 3 }            nodes as the system shows them
//     mpi             { 0 } { 1 } { 2 } { 3 }    each rank a node of its own
//
// so that no transport has an order of summation of its own: bits cannot depend on the choice.
//
// What must never happen: two ranks choose differently. A window that one node has no room for is
// therefore no local matter: the room is asked for on every node first and all ranks take the
// answer together, since one that fell back alone would wait for messages while the others wait for
// flags. Layout and plan are compared before anything is allocated: other buckets on another rank
// would be sums of unlike things, or a hang, long after the mistake.
//
// Tested: comm/exchange_test.cpp (each transport, too small a /dev/shm),
// comm/hierarchical/node_exchange_test.cpp, and comm/flight/recorded_test.cpp (another layout on
// one rank).

#include "lockstep/comm/exchange.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"

#include "base/one_node.hpp"
#include "flight/signatures.hpp"
#include "hierarchical/exchanges.hpp"
#include "hierarchical/node_room.hpp"

#include <algorithm>
#include <functional>
#include <string>

namespace lockstep {
namespace {

/// Collective. Errors: E662 naming the ranks whose layout or plan differs.
void agree_on_layout(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    const LayoutSignature mine = signature_of(layout, plan);
    const auto given =
        ranks.all_gather(std::string(reinterpret_cast<const char*>(&mine.bits), sizeof mine.bits));
    if (std::ranges::adjacent_find(given, std::not_equal_to<>()) == given.end()) return;
    agree_on_failure(ranks, difference_of(given, "E662", ranks.broadcast(mine.text)));
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport) {
    expect(plan.ranks() == ranks.size(), "the plan is for these ranks");
    if (ranks.size() == 1) return make_single_exchange(layout, plan);
    agree_on_layout(ranks, layout, plan);
    if (transport == Transport::automatic)
        return make_node_exchange(
            nodes_with_room(
                ranks, [&](const Nodes& nodes) { return node_window_bytes(nodes, layout, plan); }),
            layout,
            plan);
    if (transport == Transport::mpi) return make_node_exchange(each_alone(ranks), layout, plan);
    Nodes nodes(ranks, node_by_memory(ranks));
    if (transport == Transport::shared_memory) check_one_node(nodes.count() == 1, ranks);
    check_room_everywhere(nodes, node_window_bytes(nodes, layout, plan));
    return make_node_exchange(std::move(nodes), layout, plan);
}

}  // namespace lockstep
