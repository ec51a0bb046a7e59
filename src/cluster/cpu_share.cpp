// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
    return std::ranges::find_first_of(a, b) != a.end();
}

}  // namespace

CpuShare cpu_share(std::span<const RankRow> rows, int rank) {
    const auto mine = std::ranges::find(rows, rank, &RankRow::rank);
    if (mine == rows.end() || mine->cpus.empty()) return {};
    const auto sharers = std::ranges::count_if(rows, [&](const RankRow& row) {
        return row.host_id == mine->host_id && overlap(row.cpus, mine->cpus);
    });
    const int cpus = static_cast<int>(mine->cpus.size()) / static_cast<int>(sharers);
    return {cpus, sharers == 1 ? std::optional(mine->cpus.back()) : std::nullopt};
}

}  // namespace lockstep
