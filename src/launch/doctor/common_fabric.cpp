// SPDX-License-Identifier: Apache-2.0
#include "doctor/common_fabric.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* ethernet = "Ethernet";

bool is_reachable(const HostProbe& host,
                  const ProbedPort& port,
                  const std::string& layer,
                  const std::string& network) {
    if (port.link_layer != layer) return false;
    if (layer != ethernet) return true;
    return std::ranges::any_of(host.own.usable, [&](const HostAddress& each) {
        return each.interface == port.interface && each.network == network;
    });
}

/// "a mlx5_0:1", or "" where the host has none.
std::string ports_text(const HostProbe& host,
                       const std::string& layer,
                       const std::string& network) {
    std::vector<std::string> names;
    for (const ProbedPort& port : host.rdma_ports)
        if (is_reachable(host, port, layer, network)) names.push_back(port.name);
    return names.empty() ? "" : fmt::format("{} {}", host.name, fmt::join(names, " "));
}

/// What all hosts have of it; nothing where one has none.
std::vector<std::string> all_ports(std::span<const HostProbe> hosts,
                                   const std::string& layer,
                                   const std::string& network) {
    std::vector<std::string> texts;
    for (const HostProbe& host : hosts) {
        texts.push_back(ports_text(host, layer, network));
        if (texts.back().empty()) return {};
    }
    return texts;
}

CommonFabric found(const char* name, const std::vector<std::string>& ports) {
    return {true, fmt::format("MPI may use {} ({})", name, fmt::join(ports, ", "))};
}

}  // namespace

CommonFabric common_fabric(std::span<const HostProbe> hosts, std::span<const std::string> joining) {
    if (const auto ports = all_ports(hosts, "InfiniBand", ""); !ports.empty())
        return found("InfiniBand", ports);
    for (const std::string& network : joining)
        if (const auto ports = all_ports(hosts, ethernet, network); !ports.empty())
            return found("RoCE", ports);
    const bool has_any =
        std::ranges::any_of(hosts, [](const HostProbe& host) { return !host.rdma_ports.empty(); });
    if (!has_any) return {};
    std::vector<std::string> without;
    for (const HostProbe& host : hosts)
        if (host.rdma_ports.empty()) without.push_back(host.name);
    if (without.empty())
        return {false,
                "RDMA is left out: no InfiniBand on all hosts, nor RoCE in a network of all"};
    return {false, fmt::format("RDMA is left out: no active port on {}", fmt::join(without, ", "))};
}

}  // namespace lockstep
