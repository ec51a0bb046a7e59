// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exchange.hpp"

#include "lockstep/core/error.hpp"

#include "exchanges.hpp"

#include <array>
#include <cstdint>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Collective. The number of ranks on the fullest node, the same answer on all ranks.
int most_ranks_on_a_node(const Communicator& ranks) {
    std::array<std::int64_t, 1> size = {ranks.split_by_node().size()};
    ranks.all_reduce_max(size);
    return static_cast<int>(size[0]);
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport) {
    expect(plan.ranks() == ranks.size(), "the plan is for these ranks");
    if (ranks.size() == 1) return make_single_exchange(layout, plan);
    const bool one_node = most_ranks_on_a_node(ranks) == ranks.size();
    if (transport == Transport::mpi || (transport == Transport::automatic && !one_node))
        return make_mpi_exchange(ranks, layout, plan);
    check(one_node, [&] {
        return Error("E631",
                     fmt::format("{} ranks on several nodes cannot share memory", ranks.size()),
                     "shared memory was asked for by name",
                     "leave the transport to Lockstep, or ask for mpi");
    });
    return make_shared_exchange(ranks, layout, plan);
}

}  // namespace lockstep
