// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/mpirun.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/shell_word.hpp"

#include "launcher.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

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

std::string ipv4_text(const sockaddr_in& address) {
    char text[INET_ADDRSTRLEN]{};
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return text;
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
    check(is_known,
          "E647",
          fmt::format("no network leads to host '{}'", host),
          "this host has no route to its address",
          "give a name or address in a network that the hosts share");
    return ipv4_text(own);
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
        const bool is_own =
            source == ipv4_text(*reinterpret_cast<const sockaddr_in*>(address->ai_addr));
        if (is_own || source.starts_with("127.")) continue;
        routes.others.push_back(host);
        const auto found = std::ranges::find(own.usable, source, &HostAddress::address);
        networks.insert(found == own.usable.end() ? "" : found->network);
    }
    if (networks.size() == 1) routes.network = *networks.begin();
    return routes;
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

void check_root(const Environment& environment) {
    const bool allowed = environment.text("OMPI_ALLOW_RUN_AS_ROOT").value_or("") == "1" &&
                         environment.text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").value_or("") == "1";
    check(::geteuid() != 0 || allowed,
          "E603",
          "Open MPI refuses to run as root",
          "a mistake as root can damage the whole system",
          "use your own account; in a container: export OMPI_ALLOW_RUN_AS_ROOT=1 "
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
}

using Words = std::vector<std::string>;

// Ranks of this machine concern no resource manager. mpirun would take a job's tasks for slots, ask
// its daemon for other nodes, and believe variables of a job that is over. A site's file of hosts
// is for several machines, too. Open MPI 4.1's rsh ends mpirun where there is no ssh, as in many
// containers. Names that an Open MPI does not have are skipped.
Words words_for_this_machine() {
    Words words{"--mca", "ras", "^slurm,tm,gridengine,lsf,loadleveler,alps,pbs,flux,pals"};
    words.insert(words.end(), {"--mca", "plm", "^rsh,slurm,tm,lsf,alps,pals"});
    for (const char* name : {host_file_setting.name_in_4, host_file_setting.name_in_5})
        words.insert(words.end(), {"--mca", name, "none"});
    return words;
}

// One node: shared memory only, no sockets.
Words words_for_one_node(const LaunchRequest& request) {
    if (!request.oversubscribe) check_cores(request.np);
    // Open MPI 5 complains of UCX, which is not used here, in each rank.
    Words words{"-np", fmt::format("{}", request.np), "--mca", "btl", "self,vader"};
    words.insert(words.end(), {"--mca", "osc", "^ucx"});
    const Words about_here = words_for_this_machine();
    words.insert(words.end(), about_here.begin(), about_here.end());
    if (!request.folder.empty())
        for (const char* place : {session_folder_setting.name_in_4,
                                  session_folder_setting.name_in_5,
                                  "btl_vader_backing_directory",
                                  "osc_sm_backing_directory"})
            words.insert(words.end(), {"--mca", place, request.folder.string()});
    return words;
}

LaunchNetwork chosen_network(const std::vector<HostSlots>& hosts, const Environment& environment) {
    Words names;
    for (const HostSlots& host : hosts) names.push_back(host.host);
    LaunchNetwork network =
        network_towards(names, addresses_of(read_topology({"/", nullptr})), environment);
    if (!network.note.empty()) once(Level::info, "{}", network.note);
    return network;
}

Words words_for_hosts(const std::vector<HostSlots>& hosts, std::size_t ranks) {
    Words listed;
    for (const HostSlots& host : hosts)
        listed.push_back(fmt::format("{}:{}", host.host, host.slots));
    return {"-np", fmt::format("{}", ranks), "--host", fmt::format("{}", fmt::join(listed, ","))};
}

// If LibTorch has no room (2.11 for CPUs takes 440 to 490 MiB of addresses, for GPUs more), the
// loader or one of its constructors ends the program before main(), without an explanation. So it
// is tried, if the limit is low enough to be a reason.
void check_addresses(const fs::path& program) {
    constexpr rlim_t plenty = rlim_t{16} << 30;
    rlimit addresses{};
    if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur >= plenty) return;
    if (program == this_executable()) return;  // it has begun
    Words argv{"env", "-i"};                   // alone: it is no rank
    for (const char* name : {"LD_LIBRARY_PATH", "LD_PRELOAD"})
        if (const auto value = Environment().text(name))
            argv.push_back(fmt::format("{}={}", name, *value));
    argv.insert(argv.end(), {program.string(), "version"});
    const ProcessResult tried = run_process(argv, {}, 60);
    if (tried.exit_code == 0) return;
    throw Error("E225",
                fmt::format("'{}' has too little memory to start", program.string()),
                fmt::format("'ulimit -v' leaves a process {} of addresses, and LibTorch's "
                            "libraries alone need 440 MiB or more. Its error: {}",
                            bytes_text(addresses.rlim_cur),
                            printable(tried.output.substr(0, tried.output.find('\n')))),
                "raise the limit: ulimit -v unlimited (Slurm: --mem)");
}

}  // namespace

LaunchNetwork network_towards(std::span<const std::string> hosts,
                              const HostAddresses& own,
                              const Environment& environment) {
    for (const char* name : network_variables)
        if (environment.text(name))
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

std::vector<std::string> mpirun_line(const LaunchRequest& request, const Environment& environment) {
    check_root(environment);
    Words argv{"mpirun"};
    const auto add = [&](const Words& words) {
        argv.insert(argv.end(), words.begin(), words.end());
    };
    LaunchNetwork network;
    if (request.hosts.empty()) {
        add(words_for_one_node(request));
    } else {
        const std::vector<HostSlots> hosts = parse_hosts(request.hosts);
        const bool is_given = request.oversubscribe && request.np > 0;
        const std::size_t ranks = is_given ? static_cast<std::size_t>(request.np)
                                           : lay_out(hosts, request.np, MapBy::slot).size();
        network = chosen_network(hosts, environment);
        add(words_for_hosts(hosts, ranks));
        add(network_words(network));
        if (!network.is_needed) add(words_for_this_machine());
    }
    add({"--bind-to", "none"});
    add(carrier_words(network, environment));
    if (request.oversubscribe) argv.emplace_back("--oversubscribe");
    argv.push_back(request.program.string());
    argv.insert(argv.end(), request.words.begin(), request.words.end());
    return argv;
}

void check_rank_program(const fs::path& program) {
    check(!find_program(program.string()).empty(),
          "E610",
          fmt::format("cannot start '{}'", program.string()),
          "it must be in the folder of lockstep, but is not there",
          "build or install both programs into one folder");
    check_addresses(program);
}

void become_rank(const fs::path& program,
                 const std::vector<std::string>& words,
                 const std::map<std::string, std::string>& environment) {
    check_rank_program(program);
    std::vector<std::string> argv = {program.string()};
    argv.insert(argv.end(), words.begin(), words.end());
    become_process(argv, environment);
}

}  // namespace lockstep
