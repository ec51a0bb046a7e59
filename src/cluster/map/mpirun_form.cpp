// SPDX-License-Identifier: Apache-2.0
#include "placement/core_split.hpp"
#include "plan_forms.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

using CpuGroups = std::vector<std::vector<int>>;

/// What --map-by ppr:N:OBJECT:PE=n does: N ranks to each object in turn, each the next n cores of
/// it.
std::vector<std::vector<int>> cores_by_ppr(const NodeTopology& node,
                                           const CpuGroups& objects,
                                           std::size_t ranks,
                                           std::size_t cores_each) {
    std::vector<std::vector<int>> given;
    for (const auto& object : objects) {
        const auto cores = cores_within(node, object);
        for (std::size_t r = 0; r < ranks; ++r) {
            auto& cpus = given.emplace_back();
            for (std::size_t c = r * cores_each; c < (r + 1) * cores_each && c < cores.size(); ++c)
                cpus.push_back(cores[c].front());
        }
    }
    return given;
}

/// "ppr:4:socket:PE=8" where that gives just this host's cores; "" where it does not.
std::string ppr_of(const NodeTopology& node,
                   const HostSeats& host,
                   const char* name,
                   const CpuGroups& objects) {
    if (objects.empty() || host.seats.size() % objects.size() != 0) return "";
    const auto ranks = host.seats.size() / objects.size();
    const auto each = host.seats.front().cpus.size();
    std::vector<std::vector<int>> wanted;
    for (const auto& seat : host.seats) wanted.push_back(seat.cpus);
    if (cores_by_ppr(node, objects, ranks, each) != wanted) return "";
    return fmt::format("ppr:{}:{}:PE={}", ranks, name, each);
}

std::string map_by(const NodeTopology& node, const std::vector<HostSeats>& hosts) {
    if (!are_hosts_alike(hosts)) return "";
    CpuGroups numa;
    for (const auto& one : node.numa_nodes)
        if (!one.cpus.empty()) numa.push_back(one.cpus);
    const auto& host = hosts.front();
    for (const auto& found : {ppr_of(node, host, "node", {node.cpus}),
                              ppr_of(node, host, "socket", node.sockets),
                              ppr_of(node, host, "numa", numa),
                              ppr_of(node, host, "l3cache", node.l3_groups)})
        if (!found.empty()) return found;
    return "";
}

}  // namespace

std::string mpirun_text(const Placement& placement, const NodeTopology* node) {
    const auto hosts = seats_by_host(placement);
    const auto start =
        fmt::format("mpirun -np {} --host {}", placement.seats.size(), host_list(hosts));
    const auto words = train_words(placement);
    const auto order = is_by_slot(placement) ? "slot" : "node";
    if (node == nullptr) return fmt::format("{} --map-by {} {}\n", start, order, words);
    const auto ppr = is_by_slot(placement) ? map_by(*node, hosts) : "";
    if (!ppr.empty()) return fmt::format("{} --map-by {} --bind-to core {}\n", start, ppr, words);
    return fmt::format(
        "# No --map-by gives these cores: write 'lockstep map ... --format rankfile > ranks' "
        "first.\n{} {} --rankfile ranks {}\n",
        start,
        physical_rankfile,
        words);
}

}  // namespace lockstep
