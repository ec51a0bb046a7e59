// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_limits.hpp"

#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <optional>

namespace lockstep {
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

}  // namespace

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

}  // namespace lockstep
