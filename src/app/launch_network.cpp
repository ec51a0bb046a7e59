// SPDX-License-Identifier: Apache-2.0
#include "launch_network.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

using Resolved = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Resolved resolve(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int reason = ::getaddrinfo(host.c_str(), "9", &wanted, &found);
    check(reason == 0, [&] {
        return Error("E647",
                     fmt::format("host '{}' is unknown here", host),
                     ::gai_strerror(reason),
                     "give a name or address that 'getent hosts' knows");
    });
    return {found, &::freeaddrinfo};
}

// The address that this host would have in a packet to `to`. Connecting a datagram's socket sends
// none.
std::string source_towards(const addrinfo& to, const std::string& host) {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    socklen_t size = sizeof own;
    const bool is_known =
        socket && ::connect(socket.value(), to.ai_addr, to.ai_addrlen) == 0 &&
        ::getsockname(socket.value(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
    check(is_known, [&] {
        return Error("E647",
                     fmt::format("no network leads to host '{}'", host),
                     "this host has no route to its address",
                     "give a name or address in a network that the hosts share");
    });
    char text[INET_ADDRSTRLEN]{};
    ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
    return text;
}

bool is_own(const addrinfo& address, const std::string& source) {
    char text[INET_ADDRSTRLEN]{};
    const auto* there = reinterpret_cast<const sockaddr_in*>(address.ai_addr);
    ::inet_ntop(AF_INET, &there->sin_addr, text, sizeof text);
    return source == text || source.starts_with("127.");
}

}  // namespace

LaunchNetwork network_towards(std::span<const std::string> hosts, const HostAddresses& own) {
    std::set<std::string> networks;
    bool is_needed = false;
    for (const std::string& host : hosts) {
        const Resolved address = resolve(host);
        const std::string source = source_towards(*address, host);
        if (is_own(*address, source)) continue;
        is_needed = true;
        const auto found = std::ranges::find(own.usable, source, &HostAddress::address);
        networks.insert(found == own.usable.end() ? "" : found->network);
    }
    LaunchNetwork chosen{is_needed, {}, {}};
    if (networks.size() == 1) chosen.network = *networks.begin();
    if (chosen.network.empty())
        for (const LeftOutInterface& interface : own.left_out)
            chosen.left_out.push_back(interface.name);
    return chosen;
}

std::vector<std::string> network_words(const LaunchNetwork& network) {
    if (!network.is_needed) return {"--mca", "btl", "self,vader"};
    std::vector<std::string> words{"--mca", "btl", "self,vader,tcp"};
    const bool is_known = !network.network.empty();
    if (!is_known && network.left_out.empty()) return words;
    const std::string value =
        is_known ? network.network : fmt::format("{}", fmt::join(network.left_out, ","));
    for (const char* part : {"btl", "oob"})
        words.insert(
            words.end(),
            {"--mca", fmt::format("{}_tcp_if_{}", part, is_known ? "include" : "exclude"), value});
    return words;
}

}  // namespace lockstep
