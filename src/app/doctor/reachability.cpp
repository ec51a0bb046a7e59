// SPDX-License-Identifier: Apache-2.0
#include "doctor/reachability.hpp"

#include "lockstep/cluster/host_addresses.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

constexpr double patience_s = 2;

/// An address with a port, as the system's calls take it.
struct SocketName {
    sockaddr_storage storage{};
    socklen_t size = 0;
    sockaddr* any() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketName socket_name(const std::string& address, int port) {
    SocketName name;
    if (address.find(':') == address.npos) {
        auto& ip4 = reinterpret_cast<sockaddr_in&>(name.storage);
        ip4.sin_family = AF_INET;
        ip4.sin_port = htons(static_cast<std::uint16_t>(port));
        if (::inet_pton(AF_INET, address.c_str(), &ip4.sin_addr) == 1) name.size = sizeof ip4;
    } else {
        auto& ip6 = reinterpret_cast<sockaddr_in6&>(name.storage);
        ip6.sin6_family = AF_INET6;
        ip6.sin6_port = htons(static_cast<std::uint16_t>(port));
        if (::inet_pton(AF_INET6, address.c_str(), &ip6.sin6_addr) == 1) name.size = sizeof ip6;
    }
    return name;
}

UniqueFd open_socket(const SocketName& name) {
    return UniqueFd(
        ::socket(name.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// A port on one own address; the kernel completes connections to it without our help.
struct Listener {
    HostAddress at;
    int port = 0;
    UniqueFd socket;
};

int port_of(int socket) {
    SocketName name;
    name.size = sizeof name.storage;
    if (::getsockname(socket, name.any(), &name.size) != 0) return 0;
    return ntohs(name.storage.ss_family == AF_INET
                     ? reinterpret_cast<sockaddr_in&>(name.storage).sin_port
                     : reinterpret_cast<sockaddr_in6&>(name.storage).sin6_port);
}

std::vector<Listener> listen_on(const HostAddresses& addresses) {
    constexpr int backlog = 4096;
    std::vector<Listener> listeners;
    for (const HostAddress& at : addresses.usable) {
        SocketName name = socket_name(at.address, 0);
        UniqueFd socket = open_socket(name);
        if (!socket || ::bind(socket.value(), name.any(), name.size) != 0) continue;
        if (::listen(socket.value(), backlog) != 0) continue;
        const int port = port_of(socket.value());
        listeners.push_back({at, port, std::move(socket)});
    }
    return listeners;
}

std::string offer_of(const NodeTopology& node, const std::vector<Listener>& listeners) {
    Json list = Json::array();
    for (const Listener& each : listeners)
        list.push_back({each.at.network, each.at.address, each.port});
    return Json{{"host", node.host}, {"ports", list}}.dump();
}

/// A connection under way.
struct Attempt {
    std::string host, address;
    UniqueFd socket;
    std::string fault;
    bool is_done = false;
};

Attempt start_attempt(const OfferedPort& to) {
    Attempt attempt{to.host, to.address};
    SocketName name = socket_name(to.address, to.port);
    attempt.socket = open_socket(name);
    const bool started =
        attempt.socket &&
        (::connect(attempt.socket.value(), name.any(), name.size) == 0 || errno == EINPROGRESS);
    if (!started) {
        attempt.fault = std::strerror(errno);
        attempt.is_done = true;
    }
    return attempt;
}

/// What the others offer in networks that this node is in.
std::vector<OfferedPort> ports_to_try(const std::vector<std::string>& offers,
                                      int own_rank,
                                      const HostAddresses& own) {
    std::vector<OfferedPort> ports;
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
        if (static_cast<int>(rank) == own_rank) continue;
        const Json offer = parse_json(offers[rank], "another node's addresses");
        const auto host = offer.at("host").get<std::string>();
        for (const Json& port : offer.at("ports")) {
            const auto network = port.at(0).get<std::string>();
            if (std::ranges::count(own.usable, network, &HostAddress::network) > 0)
                ports.push_back({host, port.at(1).get<std::string>(), port.at(2).get<int>()});
        }
    }
    return ports;
}

void note_outcome(Attempt& attempt) {
    int fault = 0;
    socklen_t size = sizeof fault;
    ::getsockopt(attempt.socket.value(), SOL_SOCKET, SO_ERROR, &fault, &size);
    if (fault != 0) attempt.fault = std::strerror(fault);
    attempt.is_done = true;
}

void finish_attempts(std::vector<Attempt>& attempts) {
    const double deadline_s = now_s() + patience_s;
    while (now_s() < deadline_s) {
        std::vector<pollfd> waiting;
        std::vector<Attempt*> owners;
        for (Attempt& each : attempts) {
            if (each.is_done) continue;
            waiting.push_back({each.socket.value(), POLLOUT, 0});
            owners.push_back(&each);
        }
        if (waiting.empty()) return;
        const auto left_ms = static_cast<int>(1000 * (deadline_s - now_s())) + 1;
        if (::poll(waiting.data(), waiting.size(), left_ms) <= 0) continue;
        for (std::size_t i = 0; i < waiting.size(); ++i)
            if (waiting[i].revents != 0) note_outcome(*owners[i]);
    }
    for (Attempt& each : attempts)
        if (!each.is_done) each.fault = fmt::format("no answer in {:.0f} s", patience_s);
}

}  // namespace

std::vector<UnreachedAddress> unreached_of(const std::vector<OfferedPort>& ports) {
    std::vector<Attempt> attempts;
    for (const OfferedPort& each : ports) attempts.push_back(start_attempt(each));
    finish_attempts(attempts);
    std::vector<UnreachedAddress> unreached;
    for (const Attempt& each : attempts)
        if (!each.fault.empty()) unreached.push_back({each.host, each.address, each.fault});
    return unreached;
}

NetworkProbe probe_addresses(const Communicator& leaders, const NodeTopology& node) {
    NetworkProbe probe;
    if (leaders.size() < 2) return probe;
    const HostAddresses own = addresses_of(node);
    const std::vector<Listener> listeners = listen_on(own);
    const auto offers = leaders.all_gather(offer_of(node, listeners));
    const auto ports = ports_to_try(offers, leaders.rank(), own);
    probe.tried = static_cast<int>(ports.size());
    probe.unreached = unreached_of(ports);
    for (const OfferedPort& each : ports)
        if (std::ranges::count(probe.unreached, each.address, &UnreachedAddress::address) == 0)
            probe.reached.push_back(each.host);
    leaders.barrier();  // listeners stay until everyone has tried
    return probe;
}

}  // namespace lockstep
