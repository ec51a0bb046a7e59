// SPDX-License-Identifier: Apache-2.0
#include "silent_network.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include "doctor/reachability.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// Returns the network of `own` that contains `address`, or "".
std::string network_with(const HostAddresses& own, const std::string& address) {
    for (const HostAddress& each : own.usable) {
        const auto length = each.network.substr(each.network.find('/'));
        if (network_of(address + length) == each.network) return each.network;
    }
    return {};
}

std::string networks_text(const HostAddresses& own) {
    std::vector<std::string> texts;
    for (const HostAddress& each : own.usable)
        texts.push_back(fmt::format("{} ({})", each.network, each.interface));
    return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

/// Returns the addresses that Open MPI tries, and Lockstep would leave out: "docker0 (a bridge for
/// containers)".
std::vector<std::string> tempting(const HostAddresses& own) {
    std::vector<std::string> texts;
    for (const LeftOutInterface& each : own.left_out)
        if (each.why.starts_with("a bridge"))
            texts.push_back(fmt::format("{} ({})", each.name, each.why));
    return texts;
}

std::string why_silent(const HostAddresses& own, const NetworkSight& sight) {
    std::string why =
        fmt::format("Open MPI may use each network of this host: {}", networks_text(own));
    if (const auto bridges = tempting(own); !bridges.empty())
        why += fmt::format("\nit also tries {}, which leads to no other host",
                           fmt::join(bridges, ", "));
    if (!sight.silent.empty())
        why += fmt::format("\nmpirun's host does not answer in {}", fmt::join(sight.silent, ", "));
    return why;
}

/// mpirun's host answers in it, or it is the only one there is.
std::string network_to_use(const HostAddresses& own, const NetworkSight& sight) {
    if (!sight.working.empty()) return sight.working.front();
    const bool is_only = own.usable.size() == 1 && sight.silent.empty();
    return is_only ? own.usable.front().network : "";
}

}  // namespace

LauncherPorts launcher_ports(const std::string& uri) {
    constexpr std::string_view scheme = ";tcp://";
    const auto begin = uri.find(scheme);
    if (begin == uri.npos) return {};
    std::string rest = uri.substr(begin + scheme.size());
    rest = rest.substr(0, rest.find(';'));
    const auto colon = rest.rfind(':');
    const auto port = colon == rest.npos ? std::nullopt : parse_integer(rest.substr(colon + 1));
    if (!port) return {};
    LauncherPorts ports;
    ports.addresses = split(rest.substr(0, colon), ',');
    ports.port = static_cast<int>(*port);
    return ports;
}

NetworkSight look_at_networks(const LauncherPorts& launcher,
                              const HostAddresses& own,
                              MpirunPlace place) {
    NetworkSight sight;
    std::vector<OfferedPort> ports;
    for (const std::string& address : launcher.addresses) {
        const std::string network = network_with(own, address);
        if (network.empty()) continue;
        if (std::ranges::count(own.usable, address, &HostAddress::address) == 0)
            ports.push_back({network, address, launcher.port});
        else if (place == MpirunPlace::elsewhere)
            sight.silent.push_back(
                fmt::format("{} ({}: this host has that address itself)", network, address));
    }
    const auto unreached = unreached_of(ports);
    for (const OfferedPort& each : ports) {
        const auto found = std::ranges::find(unreached, each.address, &UnreachedAddress::address);
        if (found == unreached.end())
            sight.working.push_back(each.host);
        else
            sight.silent.push_back(
                fmt::format("{} ({}: {})", each.host, each.address, found->reason));
    }
    return sight;
}

Error no_contact(const std::string& host,
                 const std::string& phase,
                 double waited_s,
                 const HostAddresses& own,
                 const NetworkSight& sight) {
    const std::string network = network_to_use(own, sight);
    return Error(
        "E692",
        fmt::format(
            "on host {} other ranks have not answered for {:.0f} s, in {}", host, waited_s, phase),
        why_silent(own, sight),
        fmt::format("mpirun --mca btl_tcp_if_include {0} --mca oob_tcp_if_include {0} ...{1}, or "
                    "'lockstep train --hosts', which tries them all",
                    network.empty() ? "NETWORK" : network,
                    network.empty() ? ", with one in which all hosts reach each other" : ""));
}

}  // namespace lockstep
