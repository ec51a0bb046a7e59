// SPDX-License-Identifier: Apache-2.0
// Finds out why SLURM would leave a request in the queue for ever. sbatch accepts much that can
// never start, and the user finds out days later. So a request is compared with the partition and
// its kinds of nodes, by SLURM's own questions, from the outside in:
//
//     partition's nodes  - constraint, exclude ->  groups  - CPUs, GPUs, memory ->  those that hold
//       check_choice                            check_node_shape       check_node_count, _tasks
//     and beside it the partition's own rules: check_state, check_time, check_names (account, QOS)
//
// All reasons are reported at once, each with the nearest possible request: a user who fixes one
// and submits again must not meet the next.
//
// What must never happen: a job is refused that could start. If only SLURM can decide (features in
// brackets, mixed operators, an unknown limit) the answer is "it fits". Nodes that are down or
// taken do not count as missing, because they come back. Drained nodes count as missing only if no
// other is left. A consequence is not reported beside its cause: that no node has all of it is
// reported only if each item alone would fit.
//
// Tested: cluster/slurm/job_check_test.cpp, one test a reason; cluster/submit_test on a real SLURM.

#include "slurm/misfit.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// Returns true if nodes of `group` have the features that `constraint` requires of each. For
/// counts of several kinds ("[a*2&b*1]") and for combinations SLURM has to decide: true.
bool has_features(const NodeGroup& group, const std::string& constraint) {
    if (constraint.find_first_of("()[]*") != constraint.npos) return true;
    const auto names = feature_names_in(constraint);
    const auto has = [&](const std::string& name) {
        return std::ranges::count(group.features, name) > 0;
    };
    if (constraint.find('|') == constraint.npos) return std::ranges::all_of(names, has);
    return constraint.find_first_of("&,") != constraint.npos || std::ranges::any_of(names, has);
}

// Nodes without those that the job must not get, and without those that lack what it needs.
std::vector<NodeGroup> groups_of(const JobPart& part,
                                 const SlurmPartition& partition,
                                 const SlurmFacts& facts) {
    std::vector<NodeGroup> groups;
    for (NodeGroup group : facts.groups) {
        if (group.partition != partition.name || !has_features(group, part.constraint)) continue;
        group.nodes -= std::ranges::count_if(group.names, [&](const std::string& name) {
            return std::ranges::count(part.excluded, name) > 0;
        });
        if (group.nodes > 0) groups.push_back(group);
    }
    return groups;
}

std::string filters_text(const JobPart& part) {
    std::vector<std::string> filters;
    if (!part.constraint.empty()) filters.push_back("with --constraint " + part.constraint);
    if (!part.excluded.empty()) filters.emplace_back("without those of --exclude");
    return fmt::format("{}{}", filters.empty() ? "" : " ", fmt::join(filters, " and "));
}

std::int64_t most_cpus(const NodeGroup& group, const SlurmPartition& partition) {
    return std::min(group.cpus, partition.most_node_cpus.value_or(group.cpus));
}

std::int64_t most_memory(const NodeGroup& group, const SlurmPartition& partition) {
    return std::min(group.memory_mb, partition.most_memory_mb.value_or(group.memory_mb));
}

std::int64_t node_cpus(const JobPart& part) {
    return part.node_tasks.value_or(1) * part.task_cpus;
}

std::string gpus_text(const std::string& type, std::int64_t count) {
    return type.empty() ? fmt::format("{}", count) : fmt::format("{}:{}", type, count);
}

// Rules of a partition about names: accounts, or qualities of service.
struct Admission {
    const std::vector<std::string>& only;  // empty: everyone but the denied
    const std::vector<std::string>& denied;

    bool denies(const std::string& name) const { return std::ranges::count(denied, name) > 0; }
    bool admits(const std::string& name) const {
        return !denies(name) && (only.empty() || std::ranges::count(only, name) > 0);
    }
    std::string why(const std::string& name) const {
        return denies(name) ? "it is denied" : fmt::format("only {} may", fmt::join(only, ", "));
    }
    std::string fix(const std::string& name, const char* option) const {
        return denies(name) ? "" : fmt::format("{} {}", option, only.front());
    }
};

/// A part of a job beside one partition, and the reasons found so far why they do not fit.
struct Fitting {
    const JobPart& part;
    const SlurmPartition& partition;
    std::vector<NodeGroup> groups;  ///< groups_of() them
    std::vector<Misfit> found{};

    void add(std::string code, std::string what, std::string why, std::string fix = "") {
        found.push_back({std::move(code), std::move(what), std::move(why), std::move(fix)});
    }

    // The largest `amount` over the groups.
    template <class Amount>
    std::int64_t largest(Amount&& amount) const {
        std::int64_t most = 0;
        for (const NodeGroup& group : groups) most = std::max(most, amount(group));
        return most;
    }

    // Nodes by name, and those that are left.
    void check_choice(const SlurmFacts& facts) {
        if (groups.empty())
            add(part.excluded.empty() ? "E542" : "E543",
                fmt::format("no node of '{}' is left{}", partition.name, filters_text(part)),
                fmt::format("it has {} nodes", partition.total_nodes),
                part.excluded.empty() ? "drop --constraint" : "shorten --exclude");
        const auto is_in = [&](const std::string& name) {
            return std::ranges::any_of(facts.groups, [&](const NodeGroup& group) {
                return group.partition == partition.name &&
                       std::ranges::count(group.names, name) > 0;
            });
        };
        for (const std::string& name : part.required)
            if (!is_in(name))
                add("E543",
                    fmt::format("node '{}' is wanted", name),
                    fmt::format("it is not in partition '{}'", partition.name));
        const auto required = static_cast<std::int64_t>(part.required.size());
        if (part.most_nodes && required > *part.most_nodes)
            add("E543",
                fmt::format("{} nodes are requested", *part.most_nodes),
                fmt::format("--nodelist names {}, and a job gets them all", required),
                fmt::format("--nodes {}", required));
    }

    void check_gpus_of_node() {
        const auto most = largest([&](auto& group) { return group.gpus_of(part.gpu_type); });
        if (part.node_gpus <= most) return;
        std::map<std::string, std::int64_t> types;  // the most GPUs of a node
        for (const NodeGroup& group : groups)
            for (const auto& [type, count] : group.gpus)
                if (count > 0) types[type] = std::max(types[type], count);
        std::vector<std::string> there;
        for (const auto& [type, count] : types) there.push_back(gpus_text(type, count));
        std::string fix;
        if (most > 0)
            fix = "--gpus-per-node " + gpus_text(part.gpu_type, most);
        else if (!there.empty())
            fix = "--gpus-per-node " + there.front();
        add("E527",
            fmt::format("{} GPUs per node are requested{}",
                        part.node_gpus,
                        part.gpu_type.empty() ? "" : fmt::format(" of type '{}'", part.gpu_type)),
            fmt::format("nodes of '{}' have {}",
                        partition.name,
                        there.empty() ? "none" : fmt::format("{}", fmt::join(there, " or "))),
            fix);
    }

    void check_node_shape() {
        const auto cpus = largest([&](auto& group) { return most_cpus(group, partition); });
        if (node_cpus(part) > cpus)
            add("E536",
                fmt::format("{} CPUs of a node are requested: {} tasks of {}",
                            node_cpus(part),
                            part.node_tasks.value_or(1),
                            part.task_cpus),
                fmt::format("the largest node of '{}' has {}", partition.name, cpus),
                part.task_cpus <= cpus
                    ? fmt::format("--ntasks-per-node {}", cpus / part.task_cpus)
                    : fmt::format("--ntasks-per-node 1 --cpus-per-task {}", cpus));
        check_gpus_of_node();
        const auto memory = largest([&](auto& group) { return most_memory(group, partition); });
        if (part.node_memory_mb > memory)
            add("E528",
                fmt::format("{} MB of memory per node are requested", part.node_memory_mb),
                fmt::format("the largest node of '{}' has {} MB", partition.name, memory),
                fmt::format("--mem {}M", memory));
    }

    void check_node_count() {
        std::int64_t nodes = 0;
        bool is_drained = true;
        for (const NodeGroup& group : groups) {
            if (!can_hold(group, partition, part)) continue;
            nodes += group.nodes;
            is_drained = is_drained && group.state.starts_with("drain");
        }
        if (nodes > 0 && is_drained)
            add("E524",
                fmt::format("only drained nodes are left{}", filters_text(part)),
                "an administrator has taken them out of use ('sinfo -R' says why)",
                part.excluded.empty() ? "submit it when they are back" : "shorten --exclude");
        // Each is there, but not on one node.
        if (nodes == 0 && found.empty())
            add("E524",
                "CPUs, GPUs and memory of different nodes are requested",
                fmt::format("no node of '{}' has all of them", partition.name),
                "less of --ntasks-per-node, --gpus-per-node or --mem");
        const auto add_count = [&](std::int64_t asked, const std::string& rest, std::int64_t fit) {
            add("E524",
                fmt::format("{} nodes are requested", asked),
                fmt::format("'{}' {}", partition.name, rest),
                fmt::format("--nodes {}", fit));
        };
        const std::int64_t most = std::min(nodes, partition.most_nodes.value_or(nodes));
        if (part.node_count() > most && most > 0)
            add_count(part.node_count(),
                      most < nodes ? fmt::format("gives a job at most {}", most)
                                   : fmt::format("has {} such nodes{}", nodes, filters_text(part)),
                      most);
        const std::int64_t least = partition.least_nodes, asked = part.most_nodes.value_or(least);
        if (asked < least) add_count(asked, fmt::format("gives a job at least {}", least), least);
    }

    // All tasks of a part on the nodes that it may have.
    void check_tasks() {
        if (!part.tasks) return;
        std::ranges::sort(groups, std::greater{}, &NodeGroup::cpus);
        const std::int64_t most_nodes =
            part.most_nodes.value_or(partition.most_nodes.value_or(1 << 30));
        std::int64_t left = most_nodes, room = 0;
        for (const NodeGroup& group : groups) {
            if (!can_hold(group, partition, part)) continue;
            const auto by_cpus = most_cpus(group, partition) / part.task_cpus;
            room +=
                std::min(left, group.nodes) * std::min(by_cpus, part.node_tasks.value_or(by_cpus));
            left -= std::min(left, group.nodes);
        }
        if (room > 0 && *part.tasks > room)
            add("E536",
                fmt::format("{} tasks are requested", *part.tasks),
                fmt::format("'{}' has room for {} tasks with {} CPU(s) each on {} node(s)",
                            partition.name,
                            room,
                            part.task_cpus,
                            most_nodes - left),
                fmt::format("--ntasks {}", room));
    }

    void check_state() {
        if (partition.state == "UP" && partition.total_nodes > 0) return;
        add("E535",
            fmt::format("partition '{}' starts no jobs", partition.name),
            partition.total_nodes == 0 ? "it has no nodes"
                                       : fmt::format("its state is {}", partition.state));
    }

    void check_time() {
        if (!part.seconds || !partition.most_seconds || *part.seconds <= *partition.most_seconds)
            return;
        const auto most = slurm_time_text(*partition.most_seconds);
        add("E525",
            *part.seconds == endless_s
                ? "no limit of time is requested"
                : fmt::format("a time of {} is requested", slurm_time_text(*part.seconds)),
            fmt::format("'{}' allows {}", partition.name, most),
            fmt::format("--time {} (a run that is longer requeues itself and goes on)", most));
    }

    void check_names(const JobRequest& request) {
        const Admission accounts{partition.accounts, partition.denied_accounts};
        if (const auto& name = request.account; !name.empty() && !accounts.admits(name))
            add("E533",
                fmt::format("account '{}' may not use partition '{}'", name, partition.name),
                accounts.why(name),
                accounts.fix(name, "--account"));
        const Admission qos{partition.qos, partition.denied_qos};
        if (const auto& name = request.qos; !name.empty() && !qos.admits(name))
            add("E545",
                fmt::format("QOS '{}' may not be used in partition '{}'", name, partition.name),
                qos.why(name),
                qos.fix(name, "--qos"));
    }
};

}  // namespace

bool can_hold(const NodeGroup& group, const SlurmPartition& partition, const JobPart& part) {
    return most_cpus(group, partition) >= node_cpus(part) &&
           most_memory(group, partition) >= part.node_memory_mb &&
           group.gpus_of(part.gpu_type) >= part.node_gpus;
}

std::vector<std::string> feature_names_in(const std::string& constraint) {
    std::vector<std::string> names(1);
    for (const char c : constraint) {
        if (std::string_view("&|()[],*").find(c) == std::string_view::npos)
            names.back() += c;
        else
            names.emplace_back(c == '*' ? "*" : "");
    }
    std::erase_if(names, [](const std::string& name) { return name.empty() || name[0] == '*'; });
    return names;
}

std::vector<Misfit> misfits(const JobPart& part,
                            const SlurmPartition& partition,
                            const SlurmFacts& facts,
                            const JobRequest& request) {
    Fitting fitting{part, partition, groups_of(part, partition, facts)};
    if (partition.total_nodes > 0) fitting.check_choice(facts);
    if (partition.total_nodes > 0 && !fitting.groups.empty()) {
        fitting.check_node_shape();
        fitting.check_node_count();
        fitting.check_tasks();
    }
    fitting.check_state();
    fitting.check_time();
    fitting.check_names(request);
    return std::move(fitting.found);
}

}  // namespace lockstep
