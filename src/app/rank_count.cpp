// SPDX-License-Identifier: Apache-2.0
#include "rank_count.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/map.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

std::int64_t asked_ranks(const Invocation& call, const std::string& hosts) {
    const auto np = std::ranges::find(call.options, "np", &ResolvedOption::name);
    if (np != call.options.end() && np->origin != "default")
        return parse_integer(np->text).value_or(0);
    std::int64_t slots = 0;
    if (!hosts.empty())
        for (const HostSlots& host : parse_hosts(hosts)) slots += host.slots;
    return slots;
}

}  // namespace

void check_rank_count(const Invocation& call, const std::string& hosts) {
    if (!launched_by_mpi()) return;
    const Communicator& ranks = call.process.ranks;
    agree(ranks, [&] {
        check_asked_ranks(call.process.facts->launch(), asked_ranks(call, hosts), ranks.size());
    });
}

}  // namespace lockstep
