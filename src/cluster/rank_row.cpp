// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {

RankRow make_rank_row(const NodeFacts& node, int rank) {
    return {.rank = rank,
            .host = node.host,
            .host_id = node.host_id(),
            .cpus = node.allowed_cpus,
            .instruction_set = node.instruction_set,
            .memory_bytes = node.usable_memory_bytes(),
            .memory_is_limited = node.memory_limit_bytes().has_value()};
}

namespace {

std::optional<std::uint64_t> number_in(const Environment& environment, const char* name) {
    const auto text = environment.text(name);
    const auto number = text ? parse_integer(*text) : std::nullopt;
    return number && *number > 0 ? std::optional(static_cast<std::uint64_t>(*number))
                                 : std::nullopt;
}

/// SLURM counts in MiB.
std::optional<std::uint64_t> given_by_slurm(const Environment& environment) {
    if (const auto node = number_in(environment, "SLURM_MEM_PER_NODE")) return *node << 20;
    const auto of_cpu = number_in(environment, "SLURM_MEM_PER_CPU");
    const auto cpus = number_in(environment, "SLURM_CPUS_ON_NODE");
    return of_cpu && cpus ? std::optional((*of_cpu << 20) * *cpus) : std::nullopt;
}

/// What a rank with a small model takes; the code of LibTorch is in memory once for all of a node.
constexpr std::uint64_t least_memory_bytes = 256u << 20;

using Ranks = std::vector<const RankRow*>;

std::string names_of(const Ranks& ranks) {
    std::vector<int> numbers;
    for (const auto* row : ranks) numbers.push_back(row->rank);
    return ranks_text(numbers);
}

void warn_of_little_memory(const Ranks& on_node, std::vector<std::string>& warnings) {
    const auto* first = on_node.front();
    if (first->memory_bytes == 0) return;
    const auto each = first->memory_bytes / on_node.size();
    if (each >= least_memory_bytes) return;
    warnings.push_back(fmt::format(
        "{} of {} share {} of memory{}, {} each: even a small model may take {}; fix: {}",
        names_of(on_node),
        first->host,
        bytes_text(first->memory_bytes),
        first->memory_is_limited ? ", the limit of their control group" : "",
        bytes_text(each),
        bytes_text(least_memory_bytes),
        first->memory_is_limited ? "ask for more memory (sbatch --mem), or start fewer ranks"
                                 : "start fewer ranks on this node"));
}

void warn_of_mixed_instruction_sets(std::span<const RankRow> rows,
                                    InstructionSet most,
                                    std::vector<std::string>& warnings) {
    std::map<InstructionSet, Ranks> by_level;
    for (const auto& row : rows) by_level[std::min(row.instruction_set, most)].push_back(&row);
    if (by_level.size() < 2) return;
    std::string found;
    for (const auto& [level, ranks] : by_level) {
        found += fmt::format(
            "{}{} on {}", found.empty() ? "" : ", ", instruction_set_name(level), names_of(ranks));
    }
    warnings.push_back(
        fmt::format("processors differ ({}): the fastest wait for the slowest; fix: "
                    "ask for nodes of one kind (sbatch --constraint)",
                    found));
}

}  // namespace

int ranks_sharing_cpus(std::span<const RankRow> rows, int rank) {
    const auto mine = std::ranges::find(rows, rank, &RankRow::rank);
    if (mine == rows.end()) return 0;
    return static_cast<int>(std::ranges::count_if(rows, [&](const RankRow& row) {
        return row.host_id == mine->host_id &&
               std::ranges::find_first_of(row.cpus, mine->cpus) != row.cpus.end();
    }));
}

CpuShare cpu_share(std::span<const RankRow> rows, int rank) {
    const auto mine = std::ranges::find(rows, rank, &RankRow::rank);
    const int sharers = ranks_sharing_cpus(rows, rank);
    if (sharers == 0) return {};
    const int cpus = static_cast<int>(mine->cpus.size()) / sharers;
    return {cpus, sharers == 1 ? std::optional(mine->cpus.back()) : std::nullopt};
}

double core_share(std::span<const RankRow> rows, int rank, const ControlGroupFacts& group) {
    const RankRow& own = rows[static_cast<std::size_t>(rank)];
    double share = 0, here = 0;
    for (const RankRow& row : rows) here += row.host_id == own.host_id ? 1 : 0;
    for (const int cpu : own.cpus) {
        const auto may_use = [&](const RankRow& row) {
            return row.host_id == own.host_id && std::ranges::count(row.cpus, cpu) > 0;
        };
        share += 1 / static_cast<double>(std::ranges::count_if(rows, may_use));
    }
    return group.cpu_quota ? std::min(share, *group.cpu_quota / here) : share;
}

UsableMemory memory_limit(const NodeFacts& node, const Environment& environment) {
    UsableMemory limit{node.memory_bytes, "node"};
    if (const auto bytes = node.memory_limit_bytes()) limit = {*bytes, "control group"};
    const auto given = given_by_slurm(environment);
    if (given && (limit.bytes == 0 || *given < limit.bytes)) limit = {*given, "SLURM"};
    return limit;
}

std::vector<std::string> hardware_warnings(std::span<const RankRow> rows, InstructionSet most) {
    std::map<std::string, Ranks> by_node;
    for (const auto& row : rows) by_node[row.host_id].push_back(&row);
    std::vector<std::string> warnings;
    for (const auto& [id, ranks] : by_node) warn_of_little_memory(ranks, warnings);
    warn_of_mixed_instruction_sets(rows, most, warnings);
    return warnings;
}

}  // namespace lockstep
