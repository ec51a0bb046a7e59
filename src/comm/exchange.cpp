// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exchange.hpp"

#include "lockstep/core/error.hpp"

#include "exchanges.hpp"
#include "one_node.hpp"

namespace lockstep {
std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport) {
    expect(plan.ranks() == ranks.size(), "the plan is for these ranks");
    if (ranks.size() == 1) return make_single_exchange(layout, plan);
    const bool one_node = are_on_one_node(ranks);
    if (transport == Transport::mpi || (transport == Transport::automatic && !one_node))
        return make_mpi_exchange(ranks, layout, plan);
    check_one_node(one_node, ranks);
    return make_shared_exchange(ranks, layout, plan);
}

}  // namespace lockstep
