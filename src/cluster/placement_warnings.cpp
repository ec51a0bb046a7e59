// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/rank_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <map>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// What the smallest rank needs before it holds any data: LibTorch's code and its allocator.
constexpr std::uint64_t least_memory_bytes = 512u << 20;

using Ranks = std::vector<const RankRow*>;

std::string names_of(const Ranks& ranks) {
    std::vector<int> numbers;
    for (const auto* row : ranks) numbers.push_back(row->rank);
    return fmt::format("{} {}", numbers.size() == 1 ? "rank" : "ranks", fold_ranks(numbers));
}

int threads_of(const Ranks& ranks) {
    int threads = 0;
    for (const auto* row : ranks) threads += row->threads;
    return threads;
}

std::string plural(std::size_t count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string crowded(const Ranks& ranks, const std::vector<int>& cpus) {
    const auto& host = ranks.front()->host;
    if (cpus.size() == 1 && ranks.size() > 1) {
        return fmt::format(
            "{} share core {} of {} and run at a fraction of their speed; fix: give "
            "each rank a core of its own, as in mpirun --bind-to core --map-by core",
            names_of(ranks),
            cpus.front(),
            host);
    }
    return fmt::format(
        "{} of {}: {} on {} ({}); fix: fewer ranks, fewer --threads, or "
        "more cores for each rank, as in mpirun --map-by slot:PE={}",
        names_of(ranks),
        host,
        plural(static_cast<std::size_t>(threads_of(ranks)), "thread"),
        plural(cpus.size(), "core"),
        cpu_list_text(cpus),
        ranks.front()->threads);
}

/// Ranks with one and the same set of cores are judged together; then the node as a whole, which
/// finds overlapping sets too.
void warn_of_crowded_cores(const Ranks& on_node, std::vector<std::string>& warnings) {
    std::map<std::vector<int>, Ranks> by_cpus;
    std::set<int> all;
    for (const auto* row : on_node) {
        by_cpus[row->cpus].push_back(row);
        all.insert(row->cpus.begin(), row->cpus.end());
    }
    bool is_crowded = false;
    for (const auto& [cpus, ranks] : by_cpus) {
        if (cpus.empty() || threads_of(ranks) <= static_cast<int>(cpus.size())) continue;
        warnings.push_back(crowded(ranks, cpus));
        is_crowded = true;
    }
    if (is_crowded || all.empty() || threads_of(on_node) <= static_cast<int>(all.size())) return;
    warnings.push_back(crowded(on_node, {all.begin(), all.end()}));
}

void warn_of_little_memory(const Ranks& on_node, std::vector<std::string>& warnings) {
    const auto* first = on_node.front();
    if (first->memory_bytes == 0) return;
    const auto each = first->memory_bytes / on_node.size();
    if (each >= least_memory_bytes) return;
    warnings.push_back(fmt::format(
        "{} of {}: {} each of the {} {} is little (a rank takes {} and up); fix: {}",
        names_of(on_node),
        first->host,
        bytes_text(each),
        bytes_text(first->memory_bytes),
        first->memory_is_limited ? "that its control group allows" : "of this node",
        bytes_text(least_memory_bytes),
        first->memory_is_limited ? "ask for more memory (sbatch --mem), or start fewer ranks"
                                 : "start fewer ranks on this node"));
}

void warn_of_mixed_instruction_sets(std::span<const RankRow> rows,
                                    std::vector<std::string>& warnings) {
    std::map<std::string, Ranks> by_level;
    for (const auto& row : rows) by_level[row.instruction_set].push_back(&row);
    if (by_level.size() < 2) return;
    std::string found;
    for (const auto& [level, ranks] : by_level) {
        found += fmt::format("{}{} on {}", found.empty() ? "" : ", ", level, names_of(ranks));
    }
    warnings.push_back(
        fmt::format("processors differ ({}): the fastest wait for the slowest; fix: "
                    "ask for nodes of one kind (sbatch --constraint)",
                    found));
}

}  // namespace

std::vector<std::string> placement_warnings(std::span<const RankRow> rows) {
    std::map<std::string, Ranks> by_node;
    for (const auto& row : rows) by_node[row.host_id].push_back(&row);
    std::vector<std::string> warnings;
    for (const auto& [id, ranks] : by_node) {
        warn_of_crowded_cores(ranks, warnings);
        warn_of_little_memory(ranks, warnings);
    }
    warn_of_mixed_instruction_sets(rows, warnings);
    return warnings;
}

}  // namespace lockstep
