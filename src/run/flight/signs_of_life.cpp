// SPDX-License-Identifier: Apache-2.0
#include "flight/signs_of_life.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/watchdog.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string boot_id() {
    return text_of("/proc/sys/kernel/random/boot_id").substr(0, 36);
}

std::uint64_t pid_namespace() {
    struct stat facts {};
    return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

// "S (sleeping)" from /proc/PID/task/TID/status.
std::string state_of(const fs::path& status) {
    constexpr std::string_view key = "State:\t";
    for (const std::string& line : split(text_of(status), '\n'))
        if (line.starts_with(key)) return printable(line.substr(key.size()));
    return "?";
}

constexpr int watched = 8;

constexpr std::array<std::string_view, 4> state_names{"running", "stopped", "gone", "ended"};
constexpr std::string_view first_word = "lockstep-node-1", last_word = "end";
constexpr std::size_t most_bytes = 1u << 20;

// The text has the same size as long as the node has the same ranks: overwriting leaves no rest.
std::string beat_text(const NodeBeat& beat) {
    std::string text = fmt::format("{} {} {} {} {}\n",
                                   first_word,
                                   beat.count,
                                   beat.unix_s,
                                   int{beat.is_leaving},
                                   int{beat.has_lost_link});
    for (const RankBeat& rank : beat.ranks)
        text += fmt::format("{} {} {}\n",
                            rank.rank,
                            rank.pid,
                            state_names.at(static_cast<std::size_t>(rank.state)));
    text += fmt::format("{}\n", last_word);
    constexpr std::size_t head_bytes = 128, rank_bytes = 64;
    text.resize(head_bytes + rank_bytes * beat.ranks.size(), '\n');
    return text;
}

std::optional<NodeBeat> parse(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    NodeBeat beat;
    words >> word >> beat.count >> beat.unix_s >> beat.is_leaving >> beat.has_lost_link;
    if (!words || word != first_word) return std::nullopt;
    while (words >> word && word != last_word) {
        RankBeat rank;
        std::string state;
        std::istringstream number(word);
        if (!(number >> rank.rank) || !(words >> rank.pid >> state)) return std::nullopt;
        const auto known = std::ranges::find(state_names, state);
        if (known == state_names.end()) return std::nullopt;
        rank.state = static_cast<RankState>(known - state_names.begin());
        beat.ranks.push_back(rank);
    }
    if (word != last_word) return std::nullopt;  // torn: the next look finds it whole
    return beat;
}

void add_beat(const NodeBeat& beat, std::vector<RankTrace>& traces) {
    for (const RankBeat& rank : beat.ranks) {
        const auto found = std::ranges::find(traces, rank.rank, &RankTrace::rank);
        const bool is_news = found != traces.end() && found->damage.empty() &&
                             found->life == Life::elsewhere && found->pid == rank.pid;
        if (!is_news) continue;
        if (rank.state == RankState::gone) found->life = Life::gone;
        if (rank.state == RankState::stopped) found->life = Life::stopped;
        if (rank.state == RankState::running)
            found->heartbeat_s = std::max(found->heartbeat_s, beat.unix_s);
    }
}

std::string address_text(int family, const void* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    return ::inet_ntop(family, address, text.data(), text.size()) == nullptr ? "" : text.data();
}

/// Returns the addresses of this network namespace, without loopback.
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

std::optional<ProcessStat> parse_process_stat(const std::string& text) {
    const auto name_end = text.rfind(')');
    if (name_end == text.npos) return std::nullopt;
    std::istringstream fields(text.substr(name_end + 1));
    ProcessStat stat;
    fields >> stat.state;
    constexpr int between = 18;  // fields 4 to 21
    std::string skipped;
    for (int i = 0; i < between; ++i) fields >> skipped;
    fields >> stat.start_ticks;
    if (!fields) return std::nullopt;
    return stat;
}

// Of the first thread: an emulator of other processors (qemu) makes up /proc/PID/stat of its own
// process, and the start in it is not what others read.
static std::optional<ProcessStat> stat_of(std::int64_t pid) {
    return parse_process_stat(text_of(fmt::format("/proc/{0}/task/{0}/stat", pid)));
}

ProcessIdentity this_process() {
    const auto stat = stat_of(::getpid());
    return {.boot_id = boot_id(),
            .pid_namespace = pid_namespace(),
            .pid = ::getpid(),
            .start_ticks = stat ? stat->start_ticks : 0};
}

Life life_of(const ProcessIdentity& process) {
    static const std::string here = boot_id();
    static const std::uint64_t pids = pid_namespace();
    const bool is_here = !here.empty() && process.boot_id == here &&
                         process.pid_namespace == pids && process.pid > 0;
    if (!is_here) return Life::elsewhere;
    const auto stat = stat_of(process.pid);
    if (!stat) {
        const auto pid = static_cast<pid_t>(process.pid);
        return ::kill(pid, 0) != 0 && errno == ESRCH ? Life::gone : Life::elsewhere;
    }
    if (stat->start_ticks != process.start_ticks) return Life::gone;
    if (stat->state == 'Z' || stat->state == 'X') return Life::gone;
    return stat->state == 'T' || stat->state == 't' ? Life::stopped : Life::running;
}

std::string thread_list() {
    std::string text = fmt::format("{:>8}  {:<16} {:<16} {}\n", "thread", "name", "state", "in");
    std::error_code failed;
    for (const auto& task : fs::directory_iterator("/proc/self/task", failed)) {
        const auto& path = task.path();
        text += fmt::format("{:>8}  {:<16} {:<16} {}\n",
                            path.filename().string(),
                            printable(text_of(path / "comm")),
                            state_of(path / "status"),
                            printable(text_of(path / "wchan")));
    }
    return text;
}

Peers::Peers(fs::path folder, int rank, int ranks) : folder_(std::move(folder)) {
    for (int step = 1; step < ranks && step <= watched; ++step)
        unknown_.push_back((rank + step) % ranks);
}

Life Peers::worst() {
    std::erase_if(unknown_, [&](int rank) {
        const auto process = read_ring_process(ring_path(folder_, rank));
        if (process) known_.emplace(rank, *process);
        return process.has_value();
    });
    Life worst = Life::running;
    for (const auto& [rank, process] : known_) {
        const Life life = life_of(process);
        if (life == Life::stopped) worst = Life::stopped;
        if (life != Life::gone) continue;
        if (read_rank_trace(ring_path(folder_, rank)).end != FlightEnd::finished) return Life::gone;
    }
    return worst;
}

fs::path node_beat_path(const fs::path& folder, int node) {
    return folder / fmt::format("node-{:05}.beat", node);
}

bool write_node_beat(const fs::path& path, const NodeBeat& beat, Create create) {
    UniqueFd file = open_for_writing(path, O_WRONLY | (create == Create::yes ? O_CREAT : 0));
    if (!file) return false;
    try {
        write_all(file.value(), bytes_of(beat_text(beat)), path);
    } catch (const Error&) {
        return false;
    }
    return ::close(file.release()) == 0;
}

std::optional<NodeBeat> read_node_beat(const fs::path& path) try {
    return parse(read_file(path, most_bytes));
} catch (const Error&) {
    return std::nullopt;
}

void add_node_beats(const fs::path& folder, std::vector<RankTrace>& traces) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (entry.path().extension() == ".beat")
            if (const auto beat = read_node_beat(entry.path())) add_beat(*beat, traces);
}

void add_lost_ranks(const std::vector<RankTrace>& lost, std::vector<RankTrace>& traces) {
    for (const RankTrace& rank : lost) {
        const auto found = std::ranges::find(traces, rank.rank, &RankTrace::rank);
        if (found == traces.end()) {
            traces.insert(std::ranges::upper_bound(traces, rank.rank, {}, &RankTrace::rank), rank);
        } else if (found->damage.empty()) {
            found->life = rank.life;
            found->heartbeat_s = std::min(found->heartbeat_s, rank.heartbeat_s);
            found->unanswered_s = rank.unanswered_s;
            found->asked_by = rank.asked_by;
        } else {
            *found = rank;
        }
    }
}

std::string own_place(int node) {
    const ProcessIdentity self = this_process();
    return Json{{"node", node},
                {"host", host_name()},
                {"boot", self.boot_id},
                {"namespace", self.pid_namespace},
                {"pid", self.pid},
                {"start", self.start_ticks},
                {"addresses", own_addresses()}}
        .dump();
}

NodeMap node_map(const std::vector<std::string>& places, int rank, int node) {
    std::map<int, NodeRanks> nodes;
    int next = 0;
    for (const std::string& text : places) {
        const Json place = parse_json(text, "a rank's place");
        NodeRanks& its = nodes[static_cast<int>(json_field<std::int64_t>(place, "node", "place"))];
        its.host = json_field<std::string>(place, "host", "place");
        its.addresses = json_field<std::vector<std::string>>(place, "addresses", "place");
        its.ranks.push_back(
            {next++,
             {.boot_id = json_field<std::string>(place, "boot", "place"),
              .pid_namespace = json_field<std::uint64_t>(place, "namespace", "place"),
              .pid = json_field<std::int64_t>(place, "pid", "place"),
              .start_ticks = json_field<std::uint64_t>(place, "start", "place")}});
    }
    NodeMap map{.rank = rank,
                .own = static_cast<std::size_t>(std::distance(nodes.begin(), nodes.find(node)))};
    for (auto& [lowest, its] : nodes) map.nodes.push_back(std::move(its));
    return map;
}

bool can_beat(const NodeMap& map, const fs::path& folder) {
    return write_node_beat(node_beat_path(folder, static_cast<int>(map.own)), {}, Create::yes);
}

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
