// SPDX-License-Identifier: Apache-2.0
#include "launch_network.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/shell_word.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/resource.h>
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
    if (reason == 0) return {found, &::freeaddrinfo};
    wanted.ai_family = AF_INET6;
    if (::getaddrinfo(host.c_str(), "9", &wanted, &found) == 0) {
        ::freeaddrinfo(found);
        throw Error("E647",
                    fmt::format("host '{}' has no IPv4 address", host),
                    "'getent ahostsv4' knows none, and Open MPI connects hosts by IPv4",
                    "give a name or address in an IPv4 network of the hosts");
    }
    throw Error("E647",
                fmt::format("host '{}' is unknown here", host),
                ::gai_strerror(reason),
                "give a name or address that 'getent ahostsv4' knows");
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

/// The hosts that are this one, and the network by which this host's routes lead to the others.
struct Routes {
    std::vector<std::string> others;  ///< names of hosts that are not this one
    std::string network;              ///< "" where routes lead by several
};

Routes routes_to(std::span<const std::string> hosts, const HostAddresses& own) {
    Routes routes;
    std::set<std::string> networks;
    for (const std::string& host : hosts) {
        const Resolved address = resolve(host);
        const std::string source = source_towards(*address, host);
        if (is_own(*address, source)) continue;
        routes.others.push_back(host);
        const auto found = std::ranges::find(own.usable, source, &HostAddress::address);
        networks.insert(found == own.usable.end() ? "" : found->network);
    }
    if (networks.size() == 1) routes.network = *networks.begin();
    return routes;
}

/// The user's own word on networks, or "".
std::string chosen_by_user(const Environment& environment) {
    for (const char* name : network_variables)
        if (environment.text(name)) return name;
    return "";
}

/// The program with which mpirun reaches other hosts, with its words.
std::vector<std::string> remote_shell(const Environment& environment) {
    const auto agents = environment.text("OMPI_MCA_plm_rsh_agent").value_or("ssh");
    std::istringstream text(agents.substr(0, agents.find(':')));
    std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
    if (words == std::vector<std::string>{"ssh"})
        words.insert(words.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=10"});
    return words;
}

// mpirun was seen to need 40 for 2 ranks, 48 for 4 and 64 for 8; with fewer it waits for ever.
rlim_t files_for(int ranks) {
    return 32 + 8 * static_cast<rlim_t>(std::max(ranks, 1));
}

// Nodes of a job may have cores for all ranks, where --np starts them on this node alone.
std::string other_nodes() {
    const auto nodes = parse_integer(Environment().text("SLURM_JOB_NUM_NODES").value_or(""));
    if (nodes.value_or(1) < 2) return {};
    return fmt::format("; over the {} nodes of this job: mpirun lockstep ..., without --np",
                       *nodes);
}

constexpr rlim_t largest_file_of_mpi = 16 << 20;

void settle_open_files(int ranks) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files_for(ranks)) return;
    check(limit.rlim_max >= files_for(ranks), [&] {
        return Error(
            "E693",
            fmt::format("this process may open {} files, mpirun needs {} for {} rank(s)",
                        limit.rlim_max,
                        files_for(ranks),
                        ranks),
            "the limit of this shell or job (ulimit -n) is too low",
            fmt::format("ulimit -n {} or more; or ask the administrators to raise the limit",
                        files_for(ranks)));
    });
    limit.rlim_cur = files_for(ranks);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void check_file_size() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    check(limit.rlim_cur >= largest_file_of_mpi, [&] {
        return Error(
            "E693",
            fmt::format("files of this process may have at most {}, but Open MPI's have up to {}",
                        bytes_text(limit.rlim_cur),
                        bytes_text(largest_file_of_mpi)),
            "the limit of this shell or job (ulimit -f) is too low; checkpoints can be "
            "larger still",
            "ulimit -f unlimited");
    });
}

}  // namespace

LaunchNetwork network_towards(std::span<const std::string> hosts,
                              const HostAddresses& own,
                              const Environment& environment) {
    if (const auto name = chosen_by_user(environment); !name.empty())
        return {true, "", fmt::format("{} is set: the network is yours to choose", name)};
    const Routes routes = routes_to(hosts, own);
    if (routes.others.empty()) return {};
    const std::vector<std::string> answer{this_executable(), "doctor", "--answer-probe"};
    std::vector<std::string> names{"this host"};
    std::vector<std::vector<std::string>> commands{answer};
    for (const std::string& host : routes.others) {
        names.push_back(host);
        auto& command = commands.emplace_back(remote_shell(environment));
        command.insert(command.end(), {host, shell_text(answer)});
    }
    return choose_network(ask_hosts(names, commands), routes.network);
}

std::vector<std::string> network_words(const LaunchNetwork& network) {
    if (!network.is_needed) return {"--mca", "btl", "self,vader"};
    std::vector<std::string> words{"--mca", "btl", "self,vader,tcp"};
    if (network.network.empty()) return words;
    for (const char* part : {"btl_tcp_if_include", "oob_tcp_if_include"})  // 5.0 knows the old name
        words.insert(words.end(), {"--mca", part, network.network});
    return words;
}

std::vector<std::string> carrier_words(const LaunchNetwork& network,
                                       const Environment& environment) {
    const bool is_chosen = network.is_needed && environment.text("OMPI_MCA_pml");
    if (network.has_rdma || is_chosen) return {};
    return {"--mca", "pml", "ob1"};
}

void check_cores(int ranks) {
    const std::size_t cores = read_node_facts().allowed_cpus.size();
    check(cores == 0 || static_cast<std::size_t>(ranks) <= cores, [&] {
        return Error(
            "E601",
            fmt::format("--np {} asks for more ranks than cores", ranks),
            fmt::format("this process may use {} core(s)", cores),
            fmt::format("use --np {}, or --oversubscribe for a test", cores) + other_nodes());
    });
}

void settle_limits(int ranks) {
    settle_open_files(ranks);
    check_file_size();
}

}  // namespace lockstep
