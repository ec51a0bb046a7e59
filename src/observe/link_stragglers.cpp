// SPDX-License-Identifier: Apache-2.0
// What a slow link costs: who comes last to a sum waits for nothing but its messages, so what the
// rank that stands still least spends on sums and waiting is nobody's lateness. Steps that are
// added up in stretches (StepStretches) count lateness that goes round among ranks, too; the rates,
// which do not, decide whether there is a slow link at all.
//
// Tested: observe/stragglers_test.cpp.
#include "link_stragglers.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr double least_persistence_of_link = 0.5;  // of the steps

/// A step that all ranks have.
struct StandStill {
    std::int64_t step = 0;
    double wall_s = 0;
    double least_s = 0;  ///< in sums and waiting, of any rank
};

double standing_still_s(const StepBudget& step) {
    return step.at(Phase::comm) + step.at(Phase::wait);
}

/// Of steps in order, without the first.
std::vector<StandStill> stands_of(std::span<const RankSteps> ranks) {
    std::vector<StandStill> stands;
    for (const StepBudget& step : ranks.front().steps)
        stands.push_back({step.step, step.wall_s(), standing_still_s(step)});
    for (const RankSteps& rank : ranks.subspan(1)) {
        auto at = rank.steps.begin();
        std::erase_if(stands, [&](StandStill& stand) {
            while (at != rank.steps.end() && at->step < stand.step) ++at;
            if (at == rank.steps.end() || at->step != stand.step) return true;
            stand.least_s = std::min(stand.least_s, standing_still_s(*at));
            return false;
        });
    }
    if (!stands.empty()) stands.erase(stands.begin());
    return stands;
}

/// With the usual rate it would be so much less.
Straggler straggler_of(const SlowLink& link, std::span<const StandStill> stands) {
    const double avoidable = 1 - link.bytes_per_s / link.usual_bytes_per_s;
    double lost_s = 0, wall_s = 0, slow = 0;
    for (const StandStill& stand : stands) {
        lost_s += avoidable * stand.least_s;
        wall_s += stand.wall_s;
        if (avoidable * stand.least_s >= least_straggler_share * stand.wall_s) ++slow;
    }
    const auto steps = static_cast<double>(stands.size());
    return {.rank = link.ranks.front(),
            .host = link.host,
            .cause = StragglerCause::link,
            .lost_s = lost_s / steps,
            .share = lost_s / wall_s,
            .persistence = slow / steps,
            .data_bound = {},
            .link = link};
}

}  // namespace

std::vector<Straggler> link_stragglers(std::span<const RankSteps> ranks) {
    std::vector<RankLinks> links;
    for (const RankSteps& rank : ranks) links.push_back({rank.rank, rank.host, rank.links});
    const std::vector<SlowLink> slow = find_slow_links(links);
    if (slow.empty()) return {};
    const std::vector<StandStill> stands = stands_of(ranks);
    std::vector<Straggler> stragglers;
    for (const SlowLink& link : slow) {
        if (stands.empty()) break;
        Straggler straggler = straggler_of(link, stands);
        if (straggler.share >= least_straggler_share &&
            straggler.persistence >= least_persistence_of_link)
            stragglers.push_back(std::move(straggler));
    }
    return stragglers;
}

}  // namespace lockstep
