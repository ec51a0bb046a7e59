// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Memory of a rank with a small model; the code of LibTorch is in memory once for all of a node.
constexpr std::uint64_t least_memory_bytes = 256u << 20;

using Ranks = std::vector<const RankRow*>;

std::string names_of(const Ranks& ranks) {
    std::vector<int> numbers;
    for (const auto* row : ranks) numbers.push_back(row->rank);
    return fmt::format("{} {}", numbers.size() == 1 ? "rank" : "ranks", fold_ranks(numbers));
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

std::vector<std::string> hardware_warnings(std::span<const RankRow> rows, InstructionSet most) {
    std::map<std::string, Ranks> by_node;
    for (const auto& row : rows) by_node[row.host_id].push_back(&row);
    std::vector<std::string> warnings;
    for (const auto& [id, ranks] : by_node) warn_of_little_memory(ranks, warnings);
    warn_of_mixed_instruction_sets(rows, most, warnings);
    return warnings;
}

}  // namespace lockstep
