// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"

#include "placement/choices.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// What makes mpirun read a rankfile's slots as the kernel's CPU numbers (Open MPI 4, not 5).
constexpr std::string_view physical_rankfile = "--mca rmaps_rank_file_physical 1";

/// A plan's hosts in order of their first rank, each with its seats by local rank.
struct HostSeats {
    std::string host;
    std::vector<RankSeat> seats;
};

std::vector<HostSeats> seats_by_host(const Placement& placement) {
    std::vector<HostSeats> hosts;
    for (const auto& seat : placement.seats) {
        auto host = std::ranges::find(hosts, seat.host, &HostSeats::host);
        if (host == hosts.end()) host = hosts.insert(hosts.end(), {seat.host, {}});
        host->seats.push_back(seat);
    }
    for (auto& host : hosts) std::ranges::sort(host.seats, {}, &RankSeat::local_rank);
    return hosts;
}

/// Whether ranks fill one host after the other.
bool is_by_slot(const Placement& placement) {
    const auto& seats = placement.seats;
    for (std::size_t i = 1; i < seats.size(); ++i)
        if (seats[i].host == seats[i - 1].host ? seats[i].local_rank != seats[i - 1].local_rank + 1
                                               : seats[i].local_rank != 0)
            return false;
    return true;
}

/// Whether every host has as many seats, on the same cores.
bool are_hosts_alike(const std::vector<HostSeats>& hosts) {
    return std::ranges::all_of(hosts, [&](const HostSeats& host) {
        return std::ranges::equal(
            host.seats, hosts.front().seats, {}, &RankSeat::cpus, &RankSeat::cpus);
    });
}

/// "n1:4,n2:4"
std::string host_list(const std::vector<HostSeats>& hosts) {
    std::vector<std::string> words;
    for (const auto& host : hosts)
        words.push_back(fmt::format("{}:{}", host.host, host.seats.size()));
    return fmt::format("{}", fmt::join(words, ","));
}

/// "lockstep train --threads 8 ...", as far as ranks have the same number of them. (OMP_PROC_BIND
/// would keep readers and the communication thread on a rank's first core.)
std::string train_words(const Placement& placement) {
    const auto& seats = placement.seats;
    const bool is_same = !seats.empty() && std::ranges::all_of(seats, [&](const RankSeat& seat) {
        return seat.threads >= 1 && seat.threads == seats.front().threads;
    });
    if (!is_same) return "lockstep train ...";
    return fmt::format("lockstep train --threads {} ...", seats.front().threads);
}

using CpuGroups = std::vector<std::vector<int>>;

/// The rule of --map-by ppr:N:OBJECT:PE=n: N ranks to each object in turn, each with the next n
/// cores of it.
std::vector<std::vector<int>> cores_by_ppr(const NodeTopology& node,
                                           const CpuGroups& objects,
                                           std::size_t ranks,
                                           std::size_t cores_each) {
    std::vector<std::vector<int>> given;
    for (const auto& object : objects) {
        const auto cores = cores_within(node, object);
        for (std::size_t r = 0; r < ranks; ++r) {
            auto& cpus = given.emplace_back();
            for (std::size_t c = r * cores_each; c < (r + 1) * cores_each && c < cores.size(); ++c)
                cpus.push_back(cores[c].front());
        }
    }
    return given;
}

/// "ppr:4:socket:PE=8" where that gives just this host's cores; "" where it does not.
std::string ppr_of(const NodeTopology& node,
                   const HostSeats& host,
                   const char* name,
                   const CpuGroups& objects) {
    if (objects.empty() || host.seats.size() % objects.size() != 0) return "";
    const auto ranks = host.seats.size() / objects.size();
    const auto each = host.seats.front().cpus.size();
    std::vector<std::vector<int>> wanted;
    for (const auto& seat : host.seats) wanted.push_back(seat.cpus);
    if (cores_by_ppr(node, objects, ranks, each) != wanted) return "";
    return fmt::format("ppr:{}:{}:PE={}", ranks, name, each);
}

std::string map_by(const NodeTopology& node, const std::vector<HostSeats>& hosts) {
    if (!are_hosts_alike(hosts)) return "";
    CpuGroups numa;
    for (const auto& one : node.numa_nodes)
        if (!one.cpus.empty()) numa.push_back(one.cpus);
    const auto& host = hosts.front();
    for (const auto& found : {ppr_of(node, host, "node", {node.cpus}),
                              ppr_of(node, host, "socket", node.sockets),
                              ppr_of(node, host, "numa", numa),
                              ppr_of(node, host, "l3cache", node.l3_groups)})
        if (!found.empty()) return found;
    return "";
}

/// "0xff00": one bit for each CPU.
std::string mask_of(const std::vector<int>& cpus) {
    if (cpus.empty()) return "0x0";
    std::vector<unsigned> digits(static_cast<std::size_t>(cpus.back()) / 4 + 1);
    for (const int cpu : cpus) digits[static_cast<std::size_t>(cpu) / 4] |= 1u << (cpu % 4);
    std::string text = "0x";
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit)
        text += fmt::format("{:x}", *digit);
    return text;
}

void check_has_cores(bool has_cores, const char* form) {
    check(has_cores, [&] {
        return Error("E645",
                     fmt::format("a plan without cores has no form '{}'", form),
                     "the nodes are not known",
                     "give --topology FILE, made on such a node by 'lockstep map --save-topology'");
    });
}

void check_form(const std::vector<HostSeats>& hosts, const char* form) {
    check_has_cores(!hosts.empty() && !hosts.front().seats.front().cpus.empty(), form);
    check(are_hosts_alike(hosts), [&] {
        return Error("E645",
                     fmt::format("this plan has no form '{}'", form),
                     "srun binds all nodes in the same way, but these nodes have different ranks",
                     "the same number of ranks on every node, or --format rankfile with mpirun");
    });
}

/// Options that the step and the batch job have in common.
std::vector<std::string> shape_of(const std::vector<HostSeats>& hosts) {
    const auto& first = hosts.front();
    std::vector<std::string> words{fmt::format("--nodes={}", hosts.size()),
                                   fmt::format("--ntasks-per-node={}", first.seats.size())};
    const auto gpus =
        std::ranges::count_if(first.seats, [](const auto& seat) { return !seat.gpu.empty(); });
    if (gpus > 0) words.push_back(fmt::format("--gpus-per-node={}", gpus));
    return words;
}

/// A step with --cpus-per-task gets so many CPUs wherever SLURM picks them, and refuses masks that
/// name others: it takes the whole node.
std::string srun_line(const Placement& placement, const std::vector<HostSeats>& hosts) {
    std::vector<std::string> masks;
    for (const auto& seat : hosts.front().seats) masks.push_back(mask_of(seat.cpus));
    return fmt::format("srun --mpi=pmix {} --whole --distribution={} --cpu-bind=mask_cpu:{} {}\n",
                       fmt::join(shape_of(hosts), " "),
                       is_by_slot(placement) ? "block" : "cyclic",
                       fmt::join(masks, ","),
                       train_words(placement));
}

constexpr std::size_t table_columns = 10;
using TableRow = std::array<std::string, table_columns>;

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

/// "GPU-1234abcd": enough of a UUID to tell GPUs apart.
std::string short_uuid(const std::string& uuid) {
    const auto dash = uuid.find('-', uuid.find('-') + 1);
    const bool is_telling = uuid.substr(0, dash).find_first_not_of("GPUMI-0") != uuid.npos;
    return is_telling ? uuid.substr(0, dash) : uuid;
}

TableRow row_of(const RankSeat& seat) {
    return {std::to_string(seat.rank),
            seat.host,
            std::to_string(seat.local_rank),
            cpu_list_text(seat.cpus) + (seat.is_bound ? "*" : ""),
            seat.threads > 0 ? std::to_string(seat.threads) : "-",
            seat.comm_cpu ? std::to_string(*seat.comm_cpu) : "-",
            cpu_list_text(seat.numa_nodes),
            seat.gpu.empty()
                ? "-"
                : seat.gpu + (seat.gpu_uuid.empty() ? "" : " " + short_uuid(seat.gpu_uuid)),
            or_dash(seat.nic_path),
            or_dash(seat.nic)};
}

std::string line_of(const TableRow& row, const std::array<std::size_t, table_columns>& widths) {
    std::string line;
    for (std::size_t i = 0; i < table_columns; ++i)
        line += fmt::format("{:<{}}", row[i], i + 1 < table_columns ? widths[i] + 2 : 0);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// "2 nodes | 16 ranks x 13 threads"
std::string summary_of(const Placement& placement) {
    std::set<std::string> hosts;
    int least = placement.seats.front().threads, most = least;
    for (const auto& seat : placement.seats) {
        hosts.insert(seat.host);
        least = std::min(least, seat.threads);
        most = std::max(most, seat.threads);
    }
    auto threads = most == 0 ? "" : fmt::format(" x {} thread{}", most, most == 1 ? "" : "s");
    if (least != most) threads = fmt::format(" x {} to {} threads", least, most);
    return fmt::format("{} node{} | {} rank{}{}\n",
                       hosts.size(),
                       hosts.size() == 1 ? "" : "s",
                       placement.seats.size(),
                       placement.seats.size() == 1 ? "" : "s",
                       threads);
}

}  // namespace

std::string mpirun_text(const Placement& placement, const NodeTopology* node) {
    const auto hosts = seats_by_host(placement);
    const auto start =
        fmt::format("mpirun -np {} --host {}", placement.seats.size(), host_list(hosts));
    const auto words = train_words(placement);
    const auto order = is_by_slot(placement) ? "slot" : "node";
    if (node == nullptr) return fmt::format("{} --map-by {} {}\n", start, order, words);
    const auto ppr = is_by_slot(placement) ? map_by(*node, hosts) : "";
    if (!ppr.empty()) return fmt::format("{} --map-by {} --bind-to core {}\n", start, ppr, words);
    return fmt::format(
        "# No --map-by gives these cores: write 'lockstep map ... --format rankfile > ranks' "
        "first.\n{} {} --rankfile ranks {}\n",
        start,
        physical_rankfile,
        words);
}

std::string srun_text(const Placement& placement) {
    const auto hosts = seats_by_host(placement);
    check_form(hosts, "srun");
    return srun_line(placement, hosts);
}

std::string sbatch_text(const Placement& placement) {
    const auto hosts = seats_by_host(placement);
    check_form(hosts, "sbatch");
    std::string text = "#!/bin/bash\n";
    for (const auto& word : shape_of(hosts)) text += "#SBATCH " + word + "\n";
    std::size_t cpus = 0;
    for (const auto& seat : hosts.front().seats) cpus = std::max(cpus, seat.cpus.size());
    text += fmt::format("#SBATCH --cpus-per-task={}\n", cpus);
    // Masks name CPUs of the whole node; a job with a part of it has others.
    text += "#SBATCH --exclusive\n#SBATCH --signal=USR1@120\n";
    return text + "\n" + srun_line(placement, hosts);
}

std::string rankfile_text(const Placement& placement) {
    const bool has_cores = std::ranges::none_of(
        placement.seats, [](const RankSeat& seat) { return seat.cpus.empty(); });
    check_has_cores(has_cores, "rankfile");
    // Open MPI would else read its own numbers of cores, which depend on how it orders them.
    std::string text = fmt::format("# CPUs by the kernel's numbers: mpirun {} --rankfile FILE\n",
                                   physical_rankfile);
    for (const auto& seat : placement.seats)
        text += fmt::format("rank {}={} slot={}\n", seat.rank, seat.host, cpu_list_text(seat.cpus));
    return text;
}

std::string placement_table(const Placement& placement) {
    if (placement.seats.empty()) return "no ranks\n";
    std::vector<TableRow> rows{
        {"rank", "node", "local", "cores", "threads", "comm", "numa", "gpu", "path", "nic"}};
    for (const auto& seat : placement.seats) rows.push_back(row_of(seat));
    std::array<std::size_t, table_columns> widths{};
    for (const auto& row : rows)
        for (std::size_t i = 0; i < table_columns; ++i)
            widths[i] = std::max(widths[i], row[i].size());
    std::string text = summary_of(placement);
    for (const auto& row : rows) text += line_of(row, widths);
    const bool has_bound = std::ranges::any_of(placement.seats, &RankSeat::is_bound);
    if (has_bound) text += "* bound by the launcher, and kept\n";
    for (const auto& warning : placement.warnings) text += "warning: " + warning + "\n";
    return text;
}

}  // namespace lockstep
