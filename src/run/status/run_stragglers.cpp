// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/stragglers.hpp"

#include <cstdint>

namespace lockstep {
namespace {

/// Divides leaves like lockstep::leaves_of() of comm.
int leaves_of_rank(int rank, int ranks, int virtual_ranks) {
    const auto boundary = [&](std::int64_t r) {
        return static_cast<int>(virtual_ranks * r / ranks);
    };
    return boundary(rank + 1) - boundary(rank);
}

}  // namespace

std::vector<Straggler> find_stragglers(const RunFigures& run) {
    std::vector<RankSteps> ranks;
    const auto in_all = static_cast<int>(run.ranks.size());
    int virtual_ranks = 0;
    if (const Json* given = run.record.contract.find("virtual_ranks"))
        virtual_ranks = given->is_number_integer() ? given->get<int>() : 0;
    for (const RankFigures& rank : run.ranks)
        if (!rank.steps.empty())
            ranks.push_back({.rank = rank.facts.rank,
                             .host = rank.facts.host,
                             .steps = rank.steps,
                             .leaves = leaves_of_rank(rank.facts.rank, in_all, virtual_ranks),
                             .data_bound = rank.data_bound,
                             .links = rank.links});
    std::vector<Straggler> found = find_stragglers(ranks);
    erase_unsure(found);
    return found;
}

}  // namespace lockstep
