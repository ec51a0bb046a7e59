// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/start_watch.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Ranks of mpirun's own host see nothing of the others and leave the word to those who do.
double turn_s(const LaunchFacts& launch, const NetworkSight& sight) {
    constexpr double knows_nothing_s = 3;
    const double by_rank_s = std::min(0.02 * static_cast<double>(launch.rank.value_or(0)), 1.0);
    const bool knows_nothing = sight.silent.empty() && sight.working.empty();
    return by_rank_s + (knows_nothing ? knows_nothing_s : 0);
}

void say(const Error& error) {
    const std::string text = error.text() + "\n";
    [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, text.data(), text.size());
}

/// Returns the error of a PMIx and a Slurm that are known to hang together in MPI_Init.
std::optional<Error> known_hang(const Environment& environment,
                                const std::string& phase,
                                double waited_s) {
    if (read_launch_facts(environment).launcher != Launcher::srun) return {};
    const auto faults =
        known_faults({.pmix = loaded_pmix_version(), .slurm = installed_slurm_version()});
    if (faults.empty()) return {};
    return Error("E604",
                 fmt::format("no answer for {:.0f} s, in {}: {}", waited_s, phase, faults[0].what),
                 "the source is " + faults[0].source,
                 faults[0].fix);
}

// MPI is stuck and not to be asked: the process ends as it is, and its launcher ends the others.
[[noreturn]] void give_up(const std::string& phase, double waited_s) {
    const Environment environment;
    if (const auto error = known_hang(environment, phase, waited_s)) {
        say(*error);
        end_process(static_cast<int>(error->exit_code()));
    }
    const NodeTopology node = read_topology({"/", nullptr});
    const HostAddresses own = addresses_of(node);
    // A rank of mpirun's own host is a child of mpirun, others are of its daemon.
    const std::string parent = text_of(fmt::format("/proc/{}/comm", ::getppid()));
    const bool is_here = std::ranges::count(mpirun_names, parent) > 0;
    const auto sight =
        look_at_networks(launcher_ports(environment.text("OMPI_MCA_orte_hnp_uri").value_or("")),
                         own,
                         is_here ? MpirunPlace::here : MpirunPlace::elsewhere);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(turn_s(read_launch_facts(environment), sight)));
    const Error error = no_contact(node.host, phase, waited_s, own, sight);
    say(error);
    end_process(static_cast<int>(error.exit_code()));
}

// PMIx maps 12 MiB at once.
constexpr std::uint64_t little_room = 12u << 20;

/// The first folder in which MPI keeps files and that has little room, or "".
std::string full_folder(const Environment& environment) {
    const std::array folders{environment.text("TMPDIR").value_or("/tmp"),
                             std::string("/dev/shm"),
                             environment.text("PMIX_SERVER_TMPDIR").value_or("")};
    for (const std::string& folder : folders) try {
            if (!folder.empty() && free_bytes(folder) < little_room) return folder;
        } catch (const Error&) {  // it is not there
        }
    return {};
}

Error no_pmix(const std::string& what, const Environment& environment) {
    const std::string ranks = environment.text("PMI_SIZE").value_or("N");
    return {"E604",
            what,
            "srun offered PMI-2 and no PMIx, and this program's Open MPI knows no PMI-2; found "
            "PMI_RANK=" +
                environment.text("PMI_RANK").value_or("") + " PMI_SIZE=" + ranks,
            fmt::format("srun --mpi=pmix -n {} lockstep train ...  (srun --mpi=list shows what "
                        "this SLURM has), or mpirun",
                        ranks)};
}

/// Returns the network of `own` that contains `address`, or "".
std::string network_with(const HostAddresses& own, const std::string& address) {
    for (const HostAddress& each : own.usable) {
        const auto length = each.network.substr(each.network.find('/'));
        if (network_of(address + length) == each.network) return each.network;
    }
    return {};
}

/// Names the networks of this host, and the addresses that Open MPI tries, and Lockstep would leave
/// out: "docker0 (a bridge for containers)".
std::string why_silent(const HostAddresses& own, const NetworkSight& sight) {
    std::vector<std::string> usable, bridges;
    for (const HostAddress& each : own.usable)
        usable.push_back(fmt::format("{} ({})", each.network, each.interface));
    for (const LeftOutInterface& each : own.left_out)
        if (each.why.starts_with("a bridge"))
            bridges.push_back(fmt::format("{} ({})", each.name, each.why));
    if (usable.empty()) usable.emplace_back("none");
    std::string why =
        fmt::format("Open MPI may use each network of this host: {}", fmt::join(usable, ", "));
    if (!bridges.empty())
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

StartLimits start_limits(const Environment& environment) {
    const auto given = environment.text("LOCKSTEP_START_TIMEOUT");
    if (!given) return {};
    const auto seconds = parse_integer(*given);
    check(seconds && *seconds > 0,
          "E102",
          fmt::format("LOCKSTEP_START_TIMEOUT is '{}'", *given),
          "it is a number of seconds",
          "for example LOCKSTEP_START_TIMEOUT=120");
    return {static_cast<double>(*seconds), static_cast<double>(*seconds)};
}

Error init_failed(int status, const Environment& environment) {
    const std::string host = host_name();
    const std::string what =
        fmt::format("MPI_Init ended this process on {} with exit code {}", host, status);
    if (environment.text("PMI_FD") && !environment.text("PMIX_NAMESPACE"))
        return no_pmix(what, environment);
    const std::string folder = full_folder(environment);
    if (!folder.empty())
        return {"E632",
                what,
                fmt::format("'{}' has {} free, and MPI needs {} there",
                            folder,
                            bytes_text(free_bytes(folder)),
                            bytes_text(little_room)),
                fmt::format("make room in '{}' of {}", folder, host)};
    return {"E604",
            what,
            "MPI's output above says why",
            fmt::format("'lockstep doctor' on {}, without mpirun or srun, looks for causes", host)};
}

StartWatch::StartWatch(const StartLimits& limits) : limits_(limits) {
    init_.emplace(say, [](int status) { return init_failed(status, Environment()); });
    if (read_launch_facts(Environment()).size.value_or(1) > 1)
        thread_ = std::thread([this] { watch(); });
}

StartWatch::~StartWatch() {
    if (!thread_.joinable()) return;
    tell(is_over_);
    thread_.join();
}

void StartWatch::note_init() {
    init_.reset();
    tell(is_init_);
}

void StartWatch::watch() {
    std::unique_lock lock(mutex_);
    double begin_s = 0;
    const auto wait = [&](double seconds, auto condition) {
        begin_s = now_s();
        return changed_.wait_for(lock, std::chrono::duration<double>(seconds), condition);
    };
    if (wait(limits_.init_s, [&] { return is_init_ || is_over_; }))
        if (wait(limits_.contact_s, [&] { return is_over_; })) return;
    give_up(is_init_ ? "the first exchange after MPI_Init" : "MPI_Init", now_s() - begin_s);
}

void StartWatch::tell(bool& fact) {
    const std::lock_guard lock(mutex_);
    fact = true;
    changed_.notify_all();
}

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
        fmt::format("export OMPI_MCA_btl_tcp_if_include={0} OMPI_MCA_oob_tcp_if_include={0}{1}; or "
                    "'lockstep train --hosts', which tries them all",
                    network.empty() ? "NETWORK" : network,
                    network.empty() ? ", with one in which all hosts reach each other" : ""));
}

}  // namespace lockstep
