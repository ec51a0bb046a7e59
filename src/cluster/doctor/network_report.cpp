// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/host_addresses.hpp"

#include "doctor/families.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// "eth0: 10.0.0.0/24" of networks that all nodes are in.
std::vector<std::string> common_networks(const std::vector<NodeRanks>& nodes) {
    std::vector<const NodeTopology*> topologies;
    for (const NodeRanks& node : nodes) topologies.push_back(&node.front()->node);
    return shared_networks(topologies);
}

/// "docker0 (a bridge for containers)", each once over all nodes.
std::set<std::string> left_out_on(const std::vector<NodeRanks>& nodes) {
    std::set<std::string> left_out;
    for (const NodeRanks& node : nodes)
        for (const LeftOutInterface& each : addresses_of(node.front()->node).left_out)
            left_out.insert(fmt::format("{} ({})", each.name, each.why));
    return left_out;
}

std::string answers_text(const std::vector<NodeRanks>& nodes) {
    int tried = 0, silent = 0;
    for (const NodeRanks& node : nodes) {
        tried += node.front()->network.tried;
        silent += static_cast<int>(node.front()->network.unreached.size());
    }
    return tried == 0 ? "" : fmt::format(", {} of {} connections open", tried - silent, tried);
}

}  // namespace

std::string network_text(JobRanks ranks) {
    const auto nodes = nodes_of(ranks);
    if (nodes.size() < 2) return "";
    const auto common = common_networks(nodes);
    const auto left_out = left_out_on(nodes);
    return fmt::format(
        "network: {}{}{}\n",
        common.empty() ? "none joins all nodes"
                       : fmt::format("{} joins all nodes", fmt::join(common, ", ")),
        answers_text(nodes),
        left_out.empty() ? "" : fmt::format("; left out: {}", fmt::join(left_out, ", ")));
}

}  // namespace lockstep
