// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/split.hpp"

#include "slurm/misfit.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_lines = 40;

// Counts that multiply to the CPUs that SLURM counts, whatever it says of sockets.
struct NodeShape {
    int sockets = 1, socket_cores = 1, core_threads = 1;
    int cores() const { return sockets * socket_cores; }
};

NodeShape shape_of(const NodeGroup& group) {
    const auto cpus = static_cast<int>(std::max<std::int64_t>(group.cpus, 1));
    const NodeShape told{static_cast<int>(group.sockets),
                         static_cast<int>(group.socket_cores),
                         static_cast<int>(group.core_threads)};
    if (told.cores() * told.core_threads == cpus) return told;
    if (told.sockets > 0 && cpus % told.sockets == 0) return {told.sockets, cpus / told.sockets, 1};
    return {1, cpus, 1};
}

void add_cpus(const NodeShape& shape, NodeTopology& node) {
    for (int socket = 0; socket < shape.sockets; ++socket) {
        std::vector<int> mine;
        for (int i = 0; i < shape.socket_cores; ++i) {
            const int core = socket * shape.socket_cores + i;
            auto& threads = node.cores.emplace_back();
            for (int t = 0; t < shape.core_threads; ++t)
                threads.push_back(core + t * shape.cores());
            mine.insert(mine.end(), threads.begin(), threads.end());
        }
        std::ranges::sort(mine);
        node.sockets.push_back(mine);
        node.numa_nodes.push_back({.id = socket, .cpus = mine, .memory_bytes = 0});
        node.cpus.insert(node.cpus.end(), mine.begin(), mine.end());
    }
    std::ranges::sort(node.cpus);
}

// Whole cores, the first ones: which of them a job gets is SLURM's choice.
std::vector<int> job_cpus(const NodeTopology& node, const NodeShape& shape, const JobPart& part) {
    if (part.takes_whole_nodes) return node.cpus;
    const auto asked = part.ranks_per_node() * part.task_cpus;
    const auto cores = (asked + shape.core_threads - 1) / shape.core_threads;
    std::vector<int> cpus;
    for (std::size_t i = 0; i < node.cores.size() && static_cast<std::int64_t>(i) < cores; ++i)
        cpus.insert(cpus.end(), node.cores[i].begin(), node.cores[i].end());
    std::ranges::sort(cpus);
    return cpus;
}

void add_gpus(const NodeGroup& group, const JobPart& part, NodeTopology& node) {
    const auto all = std::max(group.gpus_of(part.gpu_type), part.node_gpus);
    const auto sockets = static_cast<std::int64_t>(node.sockets.size());
    for (std::int64_t i = 0; i < part.node_gpus; ++i) {
        GpuFacts& gpu = node.gpus.emplace_back();
        gpu.pci.address = fmt::format("gpu{}", i);
        gpu.pci.vendor = "0x10de";
        gpu.pci.numa_node = static_cast<int>(i * sockets / all);
        gpu.model = part.gpu_type;
        gpu.has_driver = true;
    }
}

// Where a part could run: its partition, and the first kind of its nodes that is large enough.
struct Home {
    std::string partition;
    const NodeGroup* group = nullptr;
};

Home home_of(const JobPart& part, const SlurmFacts& facts) {
    for (const SlurmPartition& partition : facts.partitions) {
        const bool is_asked = part.partitions.empty()
                                  ? partition.is_default
                                  : std::ranges::count(part.partitions, partition.name) > 0;
        if (!is_asked) continue;
        for (const NodeGroup& group : facts.groups)
            if (group.partition == partition.name && can_hold(group, partition, part))
                return {partition.name, &group};
    }
    return {};
}

Placement plan_part(const JobPart& part, const Home& home, int first_rank, int threads) {
    std::vector<HostSlots> hosts;
    for (std::int64_t i = 0; i < part.node_count(); ++i)
        hosts.push_back(
            {fmt::format("{}:{}", home.partition, i), static_cast<int>(part.ranks_per_node())});
    const auto ranks = lay_out(hosts, static_cast<int>(part.tasks.value_or(0)), MapBy::slot);
    const NodeTopology node = planned_node(*home.group, part);
    Placement plan = plan_job(hosts, ranks, &node, {.threads = threads});
    for (RankSeat& seat : plan.seats) seat.rank += first_rank;
    return plan;
}

std::string node_text(const NodeGroup& group) {
    const NodeShape shape = shape_of(group);
    const auto gpus = group.gpus_of("");
    return fmt::format("{} x {} cores x {} thread(s){}",
                       shape.sockets,
                       shape.socket_cores,
                       shape.core_threads,
                       gpus > 0 ? fmt::format(", {} GPUs", gpus) : "");
}

// The first lines tell of a large job what the others would.
std::string as_comments(const std::string& text) {
    const auto lines = split(text, '\n');
    std::string comments;
    for (std::size_t i = 0; i < lines.size() && i < most_lines; ++i)
        if (!lines[i].empty()) comments += fmt::format("#   {}\n", lines[i]);
    if (lines.size() > most_lines)
        comments += fmt::format("#   ... and {} lines more\n", lines.size() - most_lines);
    return comments;
}

}  // namespace

NodeTopology planned_node(const NodeGroup& group, const JobPart& part) {
    NodeTopology node;
    node.host = group.partition;
    const NodeShape shape = shape_of(group);
    add_cpus(shape, node);
    node.allowed_cpus = job_cpus(node, shape, part);
    add_gpus(group, part, node);
    return node;
}

Placement plan_job_map(const JobRequest& request, const SlurmFacts& facts, int threads) {
    Placement plan;
    plan.names_hosts = false;
    for (const JobPart& part : request.parts) {
        const Home home = home_of(part, facts);
        expect(home.group != nullptr, "a request that was checked fits some nodes");
        Placement more = plan_part(part, home, static_cast<int>(plan.seats.size()), threads);
        std::ranges::move(more.seats, std::back_inserter(plan.seats));
        std::ranges::move(more.warnings, std::back_inserter(plan.warnings));
    }
    return plan;
}

std::string job_map_text(const JobRequest& request, const SlurmFacts& facts, int threads) {
    std::string text = "# map, planned; SLURM chooses nodes and cores\n";
    for (const JobPart& part : request.parts)
        if (const Home home = home_of(part, facts); home.group != nullptr)
            text += fmt::format("#   nodes of '{}': {}\n", home.partition, node_text(*home.group));
    try {
        return text + as_comments(placement_table(plan_job_map(request, facts, threads)));
    } catch (const Error& error) {
        return text +
               fmt::format("#   none ({}): {}; {}\n", error.code(), error.what(), error.fix());
    }
}

}  // namespace lockstep
