// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double slow_share = 0.5;     // share of the highest frequency
constexpr double taken_cores = 0.3;    // that the ranks would need
constexpr double noticed_cores = 0.5;  // that the ranks would not need
constexpr double least_told = 0.05;    // cores
constexpr double least_share = 0.8;    // of the time, that a rank has a core for

using Cpus = std::vector<int>;

bool overlap(const Cpus& a, const Cpus& b) {
    return std::ranges::find_first_of(a, b) != a.end();
}

Cpus joined_cpus(const RanksOfNode& ranks) {
    std::set<int> all;
    for (const auto* facts : ranks)
        all.insert(facts->node.allowed_cpus.begin(), facts->node.allowed_cpus.end());
    return {all.begin(), all.end()};
}

int joined_threads(const RanksOfNode& ranks) {
    int threads = 0;
    for (const auto* facts : ranks) threads += facts->plan.threads;
    return threads;
}

/// By whoever bound the rank.
std::string more_cpus_for(const DoctorFacts& facts) {
    const int threads = facts.plan.threads;
    const bool is_own_share = facts.environment.contains(bound_variable);
    for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES"})
        if (facts.environment.contains(name) && !is_own_share) return fmt::format("unset {}", name);
    if (is_own_share) return "--threads 1, or fewer ranks on this node";
    if (facts.environment.contains("OMPI_COMM_WORLD_SIZE"))
        return fmt::format("mpirun --map-by slot:PE={}, or --bind-to none", threads);
    if (facts.environment.contains("SLURM_STEP_ID"))
        return fmt::format("srun --cpus-per-task {}", threads);
    return "--threads 1, or start it without taskset";
}

Ailments threads_on_one_cpu(const DoctorFacts& facts) {
    const Cpus& cpus = facts.node.allowed_cpus;
    if (cpus.size() != 1 || facts.plan.threads <= 1) return {};
    return {{.what = fmt::format("{} threads share CPU {}", facts.plan.threads, cpus[0]),
             .fix = more_cpus_for(facts)}};
}

/// Ranks with exactly these CPUs; two or more of them are crowded if the CPUs are fewer than they.
using RanksByCpus = std::map<Cpus, RanksOfNode>;
RanksByCpus by_cpus(const RanksOfNode& ranks) {
    RanksByCpus groups;
    for (const auto* facts : ranks) groups[facts->node.allowed_cpus].push_back(facts);
    return groups;
}

std::string cores_text(const Cpus& cpus) {
    return fmt::format("{} {}", cpus.size() == 1 ? "core" : "cores", cpu_list_text(cpus));
}

/// The cores of the node that its control group leaves to this job; 0: not known.
std::size_t cores_of_node(const DoctorFacts& facts) {
    const Cpus& allowed = facts.node.control_group.cpus;
    return static_cast<std::size_t>(std::ranges::count_if(
        facts.node.cores,
        [&](const Cpus& threads) { return allowed.empty() || overlap(threads, allowed); }));
}

/// Binding helps only if the node has a core for each rank.
std::string cores_for(const RanksOfNode& ranks) {
    const std::size_t cores = cores_of_node(*ranks.front());
    if (cores == 0 || cores >= ranks.size()) return "";
    return fmt::format(
        "start at most {0} rank(s) on this node (--np {0}, mpirun --map-by "
        "ppr:{0}:node, sbatch --ntasks-per-node={0}), or take more nodes",
        cores);
}

/// Where all ranks may use the same CPUs, the launcher left them unbound, and the kernel spreads
/// them, as long as there are as many CPUs as ranks.
Ailments shared_cpus(const RanksOfNode& ranks) {
    const RanksByCpus groups = by_cpus(ranks);
    Ailments found;
    for (const auto& [cpus, sharers] : groups)
        if (!cpus.empty() && sharers.size() > cpus.size())
            found.push_back({.what = fmt::format("{} share {} and run at a fraction of their speed",
                                                 ranks_text(numbers_of(sharers)),
                                                 cores_text(cpus)),
                             .fix = cores_for(ranks),
                             .ranks = numbers_of(sharers)});
    for (auto one = groups.begin(); one != groups.end(); ++one)
        for (auto other = std::next(one); other != groups.end(); ++other)
            if (overlap(one->first, other->first))
                found.push_back(
                    {.what = fmt::format("{} may use cores {}, {} cores {}: they overlap",
                                         ranks_text(numbers_of(one->second)),
                                         cpu_list_text(one->first),
                                         ranks_text(numbers_of(other->second)),
                                         cpu_list_text(other->first))});
    return found;
}

Ailments lost_cpus_per_task(const DoctorFacts& facts) {
    const auto wanted = whole_variable(facts, "SLURM_CPUS_PER_TASK");
    const bool is_step = facts.environment.contains("SLURM_STEP_ID");
    const auto cpus = static_cast<std::int64_t>(facts.node.allowed_cpus.size());
    if (!wanted || !is_step || facts.environment.contains("SRUN_CPUS_PER_TASK")) return {};
    if (cpus == 0 || cpus >= *wanted) return {};
    return {{fmt::format("{} CPU(s) of the {} that --cpus-per-task asked for", cpus, *wanted)}};
}

Ailments too_many_threads(const RanksOfNode& ranks) {
    const Cpus cpus = joined_cpus(ranks);
    const int threads = joined_threads(ranks);
    if (cpus.size() < ranks.size()) return {};  // or nothing is known; else C2 says it
    if (threads <= static_cast<int>(cpus.size())) return {};
    const auto each = cpus.size() / ranks.size();
    return {{.what = fmt::format("{} threads of {} on CPUs {}",
                                 threads,
                                 ranks_text(numbers_of(ranks)),
                                 cpu_list_text(cpus)),
             .fix = fmt::format("--threads {} (OMP_NUM_THREADS={})", each, each)}};
}

std::set<int> numa_nodes_under(const DoctorFacts& facts) {
    std::set<int> nodes;
    for (const int cpu : facts.node.allowed_cpus) nodes.insert(numa_node_of(facts.node, cpu));
    nodes.erase(-1);
    return nodes;
}

Ailments spans_numa_nodes(const RanksOfNode& ranks) {
    Ailments found;
    for (const auto* facts : ranks) {
        const auto nodes = numa_nodes_under(*facts);
        const auto& memory = facts->node.allowed_memory_nodes;
        const bool has_local_memory = memory.empty() || std::ranges::all_of(nodes, [&](int node) {
                                          return std::ranges::count(memory, node) > 0;
                                      });
        if (!has_local_memory)
            found.push_back({.what = "memory of the cores' own NUMA node is not allowed",
                             .fix = "ask for whole sockets, or ask the staff to check cpuset.mems",
                             .ranks = {facts->rank}});
        else if (nodes.size() > 1)
            found.push_back({.what = fmt::format("cores lie in {} NUMA nodes", nodes.size()),
                             .severity = ranks.size() > 1 ? Severity::warning : Severity::info,
                             .ranks = {facts->rank}});
    }
    return found;
}

Ailments throttled(const DoctorFacts& facts) {
    const auto quota = facts.node.control_group.cpu_quota;
    if (quota && *quota < facts.plan.threads)
        return {{fmt::format("the control group gives {:.1f} CPUs of time to {} thread(s)",
                             *quota,
                             facts.plan.threads)}};
    if (facts.system.throttled_moved == 0) return {};
    return {{fmt::format("the control group stopped this job {} time(s) while it was watched",
                         facts.system.throttled_moved)}};
}

/// The drivers whose governor "powersave" means "as fast as needed".
bool scales_by_itself(const std::string& driver) {
    return driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate-epp") ||
           driver.starts_with("amd_pstate");
}

Ailments slow_clock(const DoctorFacts& facts) {
    const SystemFacts& system = facts.system;
    if (facts.node.governor == "powersave" && !scales_by_itself(system.frequency_driver))
        return {{"the CPU frequency governor is 'powersave'"}};
    if (!system.frequency_khz || !system.max_frequency_khz) return {};
    const auto now = static_cast<double>(*system.frequency_khz);
    const auto most = static_cast<double>(*system.max_frequency_khz);
    if (now >= slow_share * most) return {};
    return {{.what = fmt::format("the CPU runs at {:.1f} of {:.1f} GHz", now / 1e6, most / 1e6),
             .severity = Severity::info}};
}

/// Each rank of `ranks` that has one hardware thread of a core of which another rank has the other.
Ailments shared_cores(const RanksOfNode& ranks) {
    std::set<std::vector<int>> pairs;
    for (const auto& threads : ranks.front()->node.cores) {
        std::set<int> users;
        std::set<Cpus> masks;
        for (const auto* facts : ranks)
            if (overlap(facts->node.allowed_cpus, threads)) {
                users.insert(facts->rank);
                masks.insert(facts->node.allowed_cpus);
            }
        if (threads.size() > 1 && masks.size() > 1) pairs.insert({users.begin(), users.end()});
    }
    Ailments found;
    for (const auto& users : pairs)
        found.push_back(
            {.what = fmt::format("{} use hardware threads of the same cores", ranks_text(users)),
             .why = "Two hardware threads share one core's arithmetic units.",
             .fix = "srun --hint=nomultithread, or mpirun --bind-to core",
             .ranks = users});
    return found;
}

Ailments slow_cores(const RanksOfNode& ranks) {
    Ailments found = shared_cores(ranks);
    for (const auto* facts : ranks)
        for (Ailment& ailment : slow_clock(*facts)) {
            ailment.ranks = {facts->rank};
            found.push_back(ailment);
        }
    return found;
}

/// The load of shared CPUs during the ranks' own computation, in CPUs.
struct Load {
    double others = 0, stolen = 0;  ///< load of others; the part taken by the machine's host
    double share = 1;               ///< share of the time in which a rank had a CPU
    double missing = 0;             ///< missing part of the need of the ranks' threads
};

std::optional<Load> load_of(const Cpus& cpus, const RanksOfNode& ranks) {
    Load load{.share = 0};
    double busy = 0;
    const auto count = static_cast<double>(ranks.size());
    for (const auto* facts : ranks) {
        if (!facts->load || facts->load->watched_s <= 0) return {};
        const LoadFacts& seen = *facts->load;
        busy += seen.busy_s / seen.watched_s / count;
        load.stolen += seen.stolen_s / seen.watched_s / count;
        load.share += seen.computed_s / seen.watched_s / count;
    }
    const auto all = static_cast<double>(cpus.size());
    load.others = std::max(0.0, busy - count * load.share);
    load.missing = load.others + std::min<double>(joined_threads(ranks), all) - all;
    return load;
}

Ailments busy_cores(const Cpus& cpus, const RanksOfNode& ranks) {
    const auto load = load_of(cpus, ranks);
    if (!load) return {};
    const bool is_slower = load->missing >= taken_cores || load->share < least_share;
    if (!is_slower && load->others < noticed_cores) return {};
    const bool is_stolen = load->stolen > load->others / 2;
    std::string what = fmt::format("{} had a core for {:.0f} % of the time",
                                   ranks_text(numbers_of(ranks)),
                                   100 * std::min(load->share, 1.0));
    if (load->others > least_told)
        what = fmt::format("{} keep {:.1f} of {} ({}) busy; {}",
                           is_stolen ? "other virtual machines" : "other processes",
                           load->others,
                           cpus.size(),
                           cores_text(cpus),
                           what);
    return {{.what = what,
             .fix = is_stolen ? "ask the staff of the cloud for a machine of your own" : "",
             .severity = is_slower ? Severity::warning : Severity::info,
             .ranks = numbers_of(ranks)}};
}

/// If ranks share cores with each other, C2 reports it, and the load cannot be attributed.
Ailments busy_with_others(const RanksOfNode& ranks) {
    const RanksByCpus groups = by_cpus(ranks);
    Ailments found;
    for (const auto& [cpus, sharers] : groups) {
        const bool is_shared = std::ranges::any_of(groups, [&](const auto& other) {
            return other.first != cpus && overlap(other.first, cpus);
        });
        if (!is_shared && sharers.size() <= cpus.size())
            std::ranges::move(busy_cores(cpus, sharers), std::back_inserter(found));
    }
    return found;
}

const std::array cpu_table{
    DoctorCheck{"C1",
                "several threads on one CPU",
                "This rank is bound to one CPU; its threads take turns there.",
                "srun --cpus-per-task N, mpirun --map-by slot:PE=N, or --threads 1",
                threads_on_one_cpu},
    DoctorCheck{"C2",
                "ranks share cores",
                "Every step waits for the slowest rank, and ranks on one core take turns.",
                "give each rank cores of its own: mpirun --bind-to core --map-by core, or srun "
                "--cpu-bind=cores",
                shared_cpus},
    DoctorCheck{"C3",
                "srun forgot --cpus-per-task",
                "From Slurm 22.05 on, srun does not take it over from sbatch.",
                "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK in the batch script",
                lost_cpus_per_task},
    DoctorCheck{"C4",
                "more threads than CPUs",
                "Threads that wait for each other also wait for a CPU.",
                "fewer ranks or fewer --threads",
                too_many_threads},
    DoctorCheck{"C5",
                "a rank spans NUMA nodes",
                "Memory of another socket is slower by half.",
                "mpirun --map-by numa --bind-to numa, or srun --cpu-bind=ldoms",
                spans_numa_nodes},
    DoctorCheck{"C6",
                "a quota stops the CPUs",
                "When the quota of a period is used up, all threads stop until the next.",
                "ask for as many CPUs as there are threads (docker --cpus, Kubernetes limits)",
                throttled},
    DoctorCheck{"C7",
                "cores are slower than they could be",
                "A low clock costs speed on every rank, because all wait for the slowest.",
                "ask the system's staff for the 'performance' governor (cpupower frequency-set)",
                slow_cores},
    DoctorCheck{"C8",
                "the cores are busy with other work",
                "Every step waits for the slowest rank, and a rank waits until a core is free.",
                "'ps -eo pid,user,pcpu,args --sort=-pcpu' on that host shows whose work it is: end "
                "it, or ask for whole nodes (sbatch --exclusive)",
                busy_with_others},
};

}  // namespace

std::span<const DoctorCheck> cpu_checks() {
    return cpu_table;
}

}  // namespace lockstep
