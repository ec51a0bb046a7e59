// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
    return std::ranges::find_first_of(a, b) != a.end();
}

}  // namespace

int ranks_sharing_cpus(std::span<const RankRow> rows, int rank) {
    const auto mine = std::ranges::find(rows, rank, &RankRow::rank);
    if (mine == rows.end()) return 0;
    return static_cast<int>(std::ranges::count_if(rows, [&](const RankRow& row) {
        return row.host_id == mine->host_id && overlap(row.cpus, mine->cpus);
    }));
}

CpuShare cpu_share(std::span<const RankRow> rows, int rank) {
    const auto mine = std::ranges::find(rows, rank, &RankRow::rank);
    const int sharers = ranks_sharing_cpus(rows, rank);
    if (sharers == 0) return {};
    const int cpus = static_cast<int>(mine->cpus.size()) / sharers;
    return {cpus, sharers == 1 ? std::optional(mine->cpus.back()) : std::nullopt};
}

}  // namespace lockstep
