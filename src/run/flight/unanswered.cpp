// SPDX-License-Identifier: Apache-2.0
#include "flight/unanswered.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

std::string address_text(int family, const void* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    return ::inet_ntop(family, address, text.data(), text.size()) == nullptr ? "" : text.data();
}

struct DiagRequest {
    nlmsghdr head;
    inet_diag_req_v2 what;
};

/// Asks for all TCP connections that are open, each with its tcp_info.
bool ask_for_connections(int netlink, std::uint8_t family) {
    DiagRequest request{};
    request.head = {.nlmsg_len = sizeof request,
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                    .nlmsg_seq = 1,
                    .nlmsg_pid = 0};
    request.what.sdiag_family = family;
    request.what.sdiag_protocol = IPPROTO_TCP;
    request.what.idiag_ext = 1 << (INET_DIAG_INFO - 1);
    request.what.idiag_states = 1 << TCP_ESTABLISHED;
    return ::send(netlink, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

/// tcp_info of one connection; older kernels give less of it.
std::optional<tcp_info> info_of(const nlmsghdr* message) {
    const auto* const connection = static_cast<const inet_diag_msg*>(NLMSG_DATA(message));
    auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof *connection));
    const auto* attribute = reinterpret_cast<const rtattr*>(connection + 1);
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        if (attribute->rta_type != INET_DIAG_INFO) continue;
        tcp_info info{};
        const std::size_t bytes = std::min<std::size_t>(RTA_PAYLOAD(attribute), sizeof info);
        std::memcpy(&info, RTA_DATA(attribute), bytes);
        return info;
    }
    return {};
}

void add_connection(const nlmsghdr* message, std::map<std::string, double>& found) {
    const auto info = info_of(message);
    if (!info || info->tcpi_unacked == 0 || info->tcpi_retransmits == 0) return;
    const auto* const connection = static_cast<const inet_diag_msg*>(NLMSG_DATA(message));
    const std::string to = address_text(connection->idiag_family, connection->id.idiag_dst);
    double& longest_s = found[to];
    longest_s = std::max(longest_s, info->tcpi_last_ack_recv / 1e3);
}

/// Returns true if more messages follow.
bool take_messages(int netlink, std::map<std::string, double>& found) {
    alignas(nlmsghdr) std::array<std::byte, 1u << 16> bytes;
    const ssize_t size = ::recv(netlink, bytes.data(), bytes.size(), 0);
    if (size <= 0) return false;
    auto left = static_cast<unsigned>(size);
    const auto* message = reinterpret_cast<const nlmsghdr*>(bytes.data());
    for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
        if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return false;
        if (message->nlmsg_type == SOCK_DIAG_BY_FAMILY) add_connection(message, found);
    }
    return true;
}

// A link that was lost long before somebody waits is not what they wait for.
constexpr double lately_s = 60;

enum class Carrier { present, absent, unknown };

Carrier carrier_of(const fs::path& interface) {
    const std::string value = text_of(interface / "carrier");
    if (value.empty()) return Carrier::unknown;
    return value == "0" ? Carrier::absent : Carrier::present;
}

}  // namespace

std::map<std::string, double> unanswered_addresses() {
    std::map<std::string, double> found;
    const UniqueFd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!netlink) return found;
    const timeval patience{.tv_sec = 1, .tv_usec = 0};
    ::setsockopt(netlink.value(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}})
        if (ask_for_connections(netlink.value(), family))
            while (take_messages(netlink.value(), found)) continue;
    return found;
}

std::vector<std::string> own_addresses() {
    std::vector<std::string> addresses;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return addresses;
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
        const int family = one->ifa_addr->sa_family;
        if (family == AF_INET)
            addresses.push_back(
                address_text(family, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr));
        if (family == AF_INET6)
            addresses.push_back(
                address_text(family, &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr));
    }
    ::freeifaddrs(first);
    return addresses;
}

LinkWatch::LinkWatch(fs::path folder) : folder_(std::move(folder)) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder_, failed)) {
        const std::string name = entry.path().filename().string();
        const bool is_bridge = fs::exists(entry.path() / "bridge", failed);
        if (name != "lo" && !is_bridge && carrier_of(entry.path()) == Carrier::present)
            lost_at_s_[name] = 0;
    }
}

bool LinkWatch::lost_one(double now_s) {
    bool any = false;
    for (auto& [name, lost_at_s] : lost_at_s_) {
        if (carrier_of(folder_ / name) != Carrier::absent) {
            lost_at_s = 0;
            continue;
        }
        if (lost_at_s == 0) lost_at_s = now_s;
        any = any || now_s - lost_at_s < lately_s;
    }
    return any;
}

}  // namespace lockstep
