// SPDX-License-Identifier: Apache-2.0
// Nodes of the fixtures, and ranks as launchers leave them.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::test {

inline NodeTopology node_of(const std::string& name) {
    return load_topology(std::filesystem::path(LOCKSTEP_TOPOLOGIES) / (name + ".json"));
}

/// `count` ranks that a launcher left unbound.
inline std::vector<LaunchedRank> unbound(const NodeTopology& node, int count) {
    std::vector<LaunchedRank> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back({i, i, node.allowed_cpus, {}});
    return ranks;
}

inline std::vector<LaunchedRank> bound(const std::vector<std::string>& cpus) {
    std::vector<LaunchedRank> ranks;
    for (const auto& list : cpus) {
        const int rank = static_cast<int>(ranks.size());
        ranks.push_back({rank, rank, *parse_cpu_list(list), {}});
    }
    return ranks;
}

inline Placement place(const std::string& name, int ranks, const PlacementRules& rules = {}) {
    const auto node = node_of(name);
    return place_on_node(node, unbound(node, ranks), rules);
}

inline std::vector<std::string> cores_of(const Placement& placement) {
    std::vector<std::string> cores;
    for (const auto& seat : placement.seats) cores.push_back(cpu_list_text(seat.cpus));
    return cores;
}

/// "GPU address, path class, port" for each seat.
inline std::vector<std::string> devices_of(const Placement& placement) {
    std::vector<std::string> devices;
    for (const auto& seat : placement.seats)
        devices.push_back(seat.gpu + " " + seat.nic_path + " " + seat.nic);
    return devices;
}

}  // namespace lockstep::test
