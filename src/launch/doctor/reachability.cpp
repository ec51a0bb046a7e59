// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include <arpa/inet.h>
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

int port_of(int socket) {
    SocketName name;
    name.size = sizeof name.storage;
    if (::getsockname(socket, name.any(), &name.size) != 0) return 0;
    return ntohs(name.storage.ss_family == AF_INET
                     ? reinterpret_cast<sockaddr_in&>(name.storage).sin_port
                     : reinterpret_cast<sockaddr_in6&>(name.storage).sin6_port);
}

/// A connection under way.
struct Attempt {
    UnreachedAddress to;  ///< without a reason as long as nothing is wrong
    UniqueFd socket;
    bool is_done = false;
};

Attempt start_attempt(const OfferedPort& to) {
    SocketName name = socket_name(to.address, to.port);
    Attempt attempt{{to.host, to.address, {}}, open_socket(name)};
    const bool started =
        attempt.socket &&
        (::connect(attempt.socket.value(), name.any(), name.size) == 0 || errno == EINPROGRESS);
    if (!started) {
        attempt.to.reason = std::strerror(errno);
        attempt.is_done = true;
    }
    return attempt;
}

void note_outcome(Attempt& attempt) {
    int fault = 0;
    socklen_t size = sizeof fault;
    ::getsockopt(attempt.socket.value(), SOL_SOCKET, SO_ERROR, &fault, &size);
    if (fault != 0) attempt.to.reason = std::strerror(fault);
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
        if (!each.is_done) each.to.reason = fmt::format("no answer in {:.0f} s", patience_s);
}

}  // namespace

std::vector<UnreachedAddress> unreached_of(const std::vector<OfferedPort>& ports) {
    std::vector<Attempt> attempts;
    for (const OfferedPort& each : ports) attempts.push_back(start_attempt(each));
    finish_attempts(attempts);
    std::vector<UnreachedAddress> unreached;
    for (const Attempt& each : attempts)
        if (!each.to.reason.empty()) unreached.push_back(each.to);
    return unreached;
}

OpenPorts::OpenPorts(const NodeTopology& node) : host_(node.host), own_(addresses_of(node)) {
    constexpr int backlog = 4096;  // the kernel completes connections without our help
    Json ports = Json::array();
    for (const HostAddress& at : own_.usable) {
        SocketName name = socket_name(at.address, 0);
        UniqueFd socket = open_socket(name);
        if (!socket || ::bind(socket.value(), name.any(), name.size) != 0) continue;
        if (::listen(socket.value(), backlog) != 0) continue;
        ports.push_back({at.network, at.address, port_of(socket.value())});
        sockets_.push_back(std::move(socket));
    }
    offer_ = Json{{"host", host_}, {"ports", ports}}.dump();
}

NetworkProbe OpenPorts::try_others(const std::vector<std::string>& offers, int own_index) const {
    NetworkProbe probe;
    std::vector<OfferedPort> ports;
    std::map<std::string, std::string> networks;  // by address
    for (std::size_t index = 0; index < offers.size(); ++index) {
        if (static_cast<int>(index) == own_index) continue;
        const Json offer = parse_json(offers[index], "another node's addresses");
        const auto host = offer.at("host").get<std::string>();
        for (const Json& port : offer.at("ports")) {
            const auto network = port.at(0).get<std::string>();
            const auto address = port.at(1).get<std::string>();
            if (std::ranges::count(own_.usable, network, &HostAddress::network) == 0) continue;
            ++probe.tried;
            networks[address] = network;
            const bool is_own = std::ranges::count(own_.usable, address, &HostAddress::address) > 0;
            if (is_own && host != host_)
                probe.unreached.push_back({host, address, "this host has that address itself"});
            else
                ports.push_back({host, address, port.at(2).get<int>()});
        }
    }
    const auto unreached = unreached_of(ports);
    probe.unreached.insert(probe.unreached.end(), unreached.begin(), unreached.end());
    std::set<std::string> working, failing, silent, in_doubt;
    for (const auto& [address, network] : networks) working.insert(network);
    for (const UnreachedAddress& each : probe.unreached) {
        failing.insert(networks[each.address]);
        silent.insert(each.address);
        in_doubt.insert(each.host);
    }
    for (const OfferedPort& each : ports)
        if (in_doubt.contains(each.host) && !silent.contains(each.address))
            probe.reached.push_back(each.host);
    std::ranges::set_difference(working, failing, std::back_inserter(probe.working));
    return probe;
}

NetworkProbe probe_addresses(const Communicator& leaders, const NodeTopology& node) {
    if (leaders.size() < 2) return {};
    const OpenPorts ports(node);
    const auto offers = leaders.all_gather(ports.offer());
    auto probe = ports.try_others(offers, leaders.rank());
    leaders.barrier();  // ports stay open until everyone has tried
    return probe;
}

}  // namespace lockstep
