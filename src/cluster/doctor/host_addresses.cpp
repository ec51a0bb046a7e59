// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/host_addresses.hpp"

#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

bool begins_with_any(const std::string& name, std::initializer_list<const char*> prefixes) {
    return std::ranges::any_of(prefixes, [&](const char* each) { return name.starts_with(each); });
}

bool is_link_local(const std::string& address) {
    return address.starts_with("169.254.") || address.starts_with("fe80:");
}

/// Why other nodes cannot or should not use this interface; "" if they may.
std::string reason_against(const NetworkInterface& interface) {
    const InterfaceKind kind = interface.kind;
    const std::string& name = interface.name;
    if (kind == InterfaceKind::loopback || name == "lo") return "loopback";
    if (kind == InterfaceKind::docker || begins_with_any(name, {"docker", "br-", "cni", "podman"}))
        return "a bridge for containers";
    if (begins_with_any(name, {"virbr", "vnet", "lxcbr", "lxdbr", "vmnet", "vboxnet"}))
        return "a bridge for virtual machines";
    if (kind == InterfaceKind::tunnel || begins_with_any(name, {"tun", "tap", "wg", "flannel"}))
        return "a tunnel";
    if (kind == InterfaceKind::dummy || begins_with_any(name, {"dummy", "ifb"}))
        return "no network behind it";
    if (interface.state == "down") return "down";
    if (interface.addresses.empty()) return "without address";
    if (std::ranges::all_of(interface.addresses, is_link_local)) return "link-local addresses only";
    return "";
}

std::string masked(int family, std::span<unsigned char> bytes, int prefix) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const int kept = std::clamp(prefix - 8 * static_cast<int>(i), 0, 8);
        bytes[i] = static_cast<unsigned char>(bytes[i] & (0xff00u >> kept));
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family, bytes.data(), text.data(), text.size());
    return fmt::format("{}/{}", text.data(), prefix);
}

}  // namespace

std::optional<std::string> network_of(std::string_view address_with_prefix) {
    const auto slash = address_with_prefix.find('/');
    if (slash == address_with_prefix.npos) return {};
    const std::string address(address_with_prefix.substr(0, slash));
    const auto prefix = parse_integer(address_with_prefix.substr(slash + 1));
    const int family = address.find(':') == address.npos ? AF_INET : AF_INET6;
    std::array<unsigned char, 16> bytes{};
    const std::size_t size = family == AF_INET ? 4 : 16;
    if (!prefix || *prefix < 0 || *prefix > static_cast<std::int64_t>(8 * size)) return {};
    if (::inet_pton(family, address.c_str(), bytes.data()) != 1) return {};
    return masked(family, std::span(bytes).first(size), static_cast<int>(*prefix));
}

HostAddresses addresses_of(const NodeTopology& node) {
    HostAddresses chosen;
    for (const NetworkInterface& interface : node.interfaces) {
        if (const auto reason = reason_against(interface); !reason.empty()) {
            chosen.left_out.push_back({interface.name, reason});
            continue;
        }
        for (const std::string& address : interface.addresses) {
            const auto network = network_of(address);
            if (!network || is_link_local(address)) continue;
            chosen.usable.push_back(
                {interface.name, address.substr(0, address.find('/')), *network});
        }
    }
    return chosen;
}

std::vector<std::string> shared_networks(std::span<const NodeTopology* const> nodes) {
    std::map<std::string, std::size_t> seen;
    for (const NodeTopology* node : nodes) {
        std::set<std::string> here;
        for (const HostAddress& each : addresses_of(*node).usable) here.insert(each.network);
        for (const std::string& network : here) ++seen[network];
    }
    std::vector<std::string> shared;
    for (const auto& [network, count] : seen)
        if (count == nodes.size()) shared.push_back(network);
    return shared;
}

}  // namespace lockstep
