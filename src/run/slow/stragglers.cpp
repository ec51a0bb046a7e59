// SPDX-License-Identifier: Apache-2.0
// All ranks' steps take equally long: a slow rank computes while the others wait. So the comparison
// uses each rank's own time, its wall time less its waiting:
//
//     rank 0   data | forward | backward | wait ........... | update
//     rank 1   data | forward | backward | wait ........... | update
//     rank 2   data ............... | forward | backward    | update     <- data, by this much
//                                                             ^^^^^^^^^
// A quota stops a rank for some steps and then lets it run for some, files are read in blocks of
// many steps, and a save is in few steps. So steps are not judged one by one but in a few stretches
// of half a second and more. Only stretches count in which the cause is active at all.
//
// What must never happen:
// - One hiccup makes a straggler: it takes at least two stretches, and half of those that count.
// - Jitter does: it evens out over the run, whose mean must stand out, too.
// - A GPU's rank that waits inside its sums is blamed for them: see Own.
//
// Tested: run/stragglers_test.cpp, soak/causes.
//
// The cost of a slow link: the last rank of a sum waits only for its messages, so the sums and
// waiting of the rank that waits least are not due to a late rank. Steps that are added up in
// stretches (StepStretches) also contain lateness that alternates among ranks. The rates do not;
// they decide whether there is a slow link at all.
#include "lockstep/run/stragglers.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

/// Share of the step that others lose: less makes no straggler.
constexpr double least_share = 0.05;
constexpr double least_persistence = 0.5;  // share of the steps, or of the stretches that count

/// A step that all ranks have.
struct StandStill {
    std::int64_t step = 0;
    double wall_s = 0;
    double least_s = 0;  ///< in sums and waiting, of any rank
};

double standing_still_s(const StepBudget& step) {
    return step.phases[Phase::comm] + step.phases[Phase::wait];
}

/// Returns the waits of the steps in order, without the first.
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
        if (avoidable * stand.least_s >= least_share * stand.wall_s) ++slow;
    }
    const auto steps = static_cast<double>(stands.size());
    return {.rank = link.ranks.front(),
            .host = link.host,
            .cause = StragglerCause::link,
            .lost_s = lost_s / steps,
            .share = lost_s / wall_s,
            .persistence = slow / steps,
            .link = link};
}

/// See find_stragglers(). The worst is first.
std::vector<Straggler> link_stragglers(std::span<const RankSteps> ranks) {
    const std::vector<SlowLink> slow = find_slow_links(ranks);
    if (slow.empty()) return {};
    const std::vector<StandStill> stands = stands_of(ranks);
    std::vector<Straggler> stragglers;
    for (const SlowLink& link : slow) {
        if (stands.empty()) break;
        Straggler straggler = straggler_of(link, stands);
        if (straggler.share >= least_share && straggler.persistence >= least_persistence)
            stragglers.push_back(std::move(straggler));
    }
    return stragglers;
}

constexpr double least_cause_share = 0.01;  // of a stretch, for it to count
constexpr double stretch_s = 0.5;
constexpr std::size_t least_stretches = 4, most_stretches = 8, least_slow = 2;

constexpr auto causes = static_cast<std::size_t>(StragglerCause::other) + 1;
using CauseSeconds = std::array<double, causes>;

/// Whose sums are whose own: not those of GPUs, which wait in them.
enum class Own { with_sums, without_sums };

/// Nothing for waiting.
std::optional<StragglerCause> cause_of(Phase phase) {
    if (phase == Phase::wait) return {};
    if (phase == Phase::data) return StragglerCause::data;
    if (phase == Phase::copy) return StragglerCause::copy;
    if (phase == Phase::comm) return StragglerCause::link;
    if (phase == Phase::checkpoint) return StragglerCause::files;
    return phase == Phase::other ? StragglerCause::other : StragglerCause::cores;
}

/// The work of one rank in some steps.
struct Stretch {
    double wall_s = 0;
    CauseSeconds seconds{};

    double& at(StragglerCause cause) { return seconds[static_cast<std::size_t>(cause)]; }
    double own_s(Own own) const {
        const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
        const double sums = seconds[static_cast<std::size_t>(StragglerCause::link)];
        return own == Own::with_sums ? all : all - sums;
    }
};

void add(Stretch& stretch, const StepBudget& step) {
    stretch.wall_s += step.wall_s();
    for (std::size_t i = 0; i < step.phases.size(); ++i)
        if (const auto cause = cause_of(static_cast<Phase>(i)))
            stretch.at(*cause) += step.phases[i];
}

void add(Stretch& whole, const Stretch& part) {
    whole.wall_s += part.wall_s;
    for (std::size_t i = 0; i < causes; ++i) whole.seconds[i] += part.seconds[i];
}

/// One number of each rank.
class Column {
  public:
    explicit Column(std::vector<double> values) : values_(std::move(values)), sorted_(values_) {
        std::ranges::sort(sorted_);
    }

    /// Returns how much more rank `r` has than the median of the other ranks.
    double excess(std::size_t r) const {
        const auto place = std::ranges::lower_bound(sorted_, values_[r]) - sorted_.begin();
        const auto other = [&](std::size_t i) {
            return sorted_[i < static_cast<std::size_t>(place) ? i : i + 1];
        };
        const std::size_t others = sorted_.size() - 1;
        return values_[r] - (other((others - 1) / 2) + other(others / 2)) / 2;
    }

  private:
    std::vector<double> values_, sorted_;
};

/// By rank, then in order of time: the steps that all ranks have, in the same stretches.
struct Stretches {
    std::vector<std::vector<Stretch>> of;
    std::vector<Stretch> whole;
    double steps = 0;

    std::size_t ranks() const { return of.size(); }
    std::size_t count() const { return of.empty() ? 0 : of.front().size(); }
};

/// Numbers of the steps that all of `ranks` have, but for the first.
std::vector<std::int64_t> common_steps(std::span<const RankSteps> ranks) {
    std::vector<std::int64_t> common;
    for (const RankSteps& rank : ranks) {
        std::vector<std::int64_t> own, both;
        for (const StepBudget& step : rank.steps) own.push_back(step.step);
        std::ranges::sort(own);
        if (&rank == &ranks.front()) {
            common = std::move(own);
            continue;
        }
        std::ranges::set_intersection(common, own, std::back_inserter(both));
        common = std::move(both);
    }
    const auto repeated = std::ranges::unique(common);
    common.erase(repeated.begin(), repeated.end());
    if (!common.empty()) common.erase(common.begin());
    return common;
}

std::size_t stretches_of(const RankSteps& rank, const std::vector<std::int64_t>& steps) {
    double wall_s = 0;
    for (const StepBudget& step : rank.steps) wall_s += step.wall_s();
    const double wanted = std::clamp(wall_s / stretch_s,
                                     static_cast<double>(least_stretches),
                                     static_cast<double>(most_stretches));
    return std::min(static_cast<std::size_t>(wanted), steps.size());
}

Stretches cut(std::span<const RankSteps> ranks) {
    const std::vector<std::int64_t> steps = common_steps(ranks);
    Stretches all{.of = {}, .whole = {}, .steps = static_cast<double>(steps.size())};
    if (steps.empty()) return all;
    const std::size_t count = stretches_of(ranks.front(), steps);
    for (const RankSteps& rank : ranks) {
        auto& stretches = all.of.emplace_back(count);
        for (const StepBudget& step : rank.steps) {
            const auto at = std::ranges::lower_bound(steps, step.step);
            if (at == steps.end() || *at != step.step) continue;
            const auto place = static_cast<std::size_t>(at - steps.begin());
            add(stretches[place * count / steps.size()], step);
        }
        Stretch& whole = all.whole.emplace_back();
        for (const Stretch& stretch : stretches) add(whole, stretch);
    }
    return all;
}

/// Returns the values of ranks 0, 1, ... by `number`.
template <class Number>
Column column(std::size_t ranks, Number&& number) {
    std::vector<double> values;
    for (std::size_t r = 0; r < ranks; ++r) values.push_back(number(r));
    return Column(std::move(values));
}

/// Each rank beside the others.
class Comparison {
  public:
    Comparison(const Stretches& all, Own own) : all_(all), own_(own) {
        for (std::size_t s = 0; s < all.count(); ++s)
            own_in_.push_back(
                column(all.ranks(), [&](std::size_t r) { return all.of[r][s].own_s(own); }));
        for (std::size_t i = 0; i < causes; ++i)
            by_cause_.push_back(
                column(all.ranks(), [&](std::size_t r) { return all.whole[r].seconds[i]; }));
    }

    /// Seconds that rank `r` takes longer, by rank.
    Column own() const {
        return column(all_.ranks(), [&](std::size_t r) { return all_.whole[r].own_s(own_); });
    }

    /// Returns the activity for which rank `r` takes longest, compared with the others.
    StragglerCause cause(std::size_t r) const {
        std::pair<double, StragglerCause> worst{0, StragglerCause::other};
        for (std::size_t i = 0; i < causes; ++i) {
            const auto cause = static_cast<StragglerCause>(i);
            if (cause == StragglerCause::link && own_ == Own::without_sums) continue;
            worst = std::max(worst, std::pair(by_cause_[i].excess(r), cause));
        }
        return worst.second;
    }

    /// Share of the stretches with `cause` in them in which `r` was slow; 0 where those are few.
    double persistence(std::size_t r, StragglerCause cause) const {
        double slow = 0, active = 0;
        for (std::size_t s = 0; s < all_.count(); ++s) {
            if (!is_active(s, cause)) continue;
            ++active;
            if (own_in_[s].excess(r) >= least_share * all_.of[r][s].wall_s) ++slow;
        }
        return slow < least_slow ? 0 : slow / active;
    }

  private:
    bool is_active(std::size_t s, StragglerCause cause) const {
        return std::ranges::any_of(all_.of, [&](const std::vector<Stretch>& rank) {
            const double seconds = rank[s].seconds[static_cast<std::size_t>(cause)];
            return seconds >= least_cause_share * rank[s].wall_s;
        });
    }

    const Stretches& all_;
    Own own_;
    std::vector<Column> own_in_;    ///< by stretch
    std::vector<Column> by_cause_;  ///< sums over all stretches
};

bool has_more_leaves(std::span<const RankSteps> ranks, std::size_t r) {
    if (std::ranges::count(ranks, 0, &RankSteps::leaves) > 0) return false;
    return column(ranks.size(), [&](std::size_t i) { return ranks[i].leaves; }).excess(r) > 0;
}

std::vector<Straggler> found(std::span<const RankSteps> ranks, const Stretches& all, Own own) {
    std::vector<Straggler> stragglers;
    const Comparison compared(all, own);
    const Column seconds = compared.own();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const double lost_s = seconds.excess(r), wall_s = all.whole[r].wall_s;
        if (lost_s <= 0 || lost_s < least_share * wall_s) continue;
        const StragglerCause cause = compared.cause(r);
        const double persistence = compared.persistence(r, cause);
        if (persistence < least_persistence) continue;
        const bool has_more = cause == StragglerCause::cores && has_more_leaves(ranks, r);
        stragglers.push_back({.rank = ranks[r].rank,
                              .host = ranks[r].host,
                              .cause = has_more ? StragglerCause::more : cause,
                              .lost_s = lost_s / all.steps,
                              .share = lost_s / wall_s,
                              .persistence = persistence,
                              .data_bound = ranks[r].data_bound});
    }
    std::ranges::stable_sort(stragglers, std::greater(), &Straggler::lost_s);
    return stragglers;
}

/// Where messages were timed, they say whose link is slow: a rank that takes longer for its sums
/// has to do with that, or else it is slow at moving and adding.
void take_links(std::vector<Straggler>& stragglers, std::span<const RankSteps> ranks) {
    const auto is_timed = [](const RankSteps& rank) { return !rank.links.empty(); };
    if (std::ranges::none_of(ranks, is_timed)) return;
    const std::vector<Straggler> links = link_stragglers(ranks);
    const auto is_link = [](const Straggler& straggler) {
        return straggler.cause == StragglerCause::link;
    };
    if (!links.empty()) std::erase_if(stragglers, is_link);
    for (Straggler& straggler : stragglers)
        if (is_link(straggler)) straggler.cause = StragglerCause::cores;
    stragglers.insert(stragglers.end(), links.begin(), links.end());
    std::ranges::stable_sort(stragglers, std::greater(), &Straggler::lost_s);
}

/// As lockstep::leaves_of() of comm cuts them.
int leaves_of_rank(int rank, int ranks, int virtual_ranks) {
    const auto boundary = [&](std::int64_t r) {
        return static_cast<int>(virtual_ranks * r / ranks);
    };
    return boundary(rank + 1) - boundary(rank);
}

}  // namespace

void erase_unsure(std::vector<Straggler>& stragglers) {
    constexpr double noise_s = 0.0005, sure_share = 0.25;
    std::erase_if(stragglers, [](const Straggler& straggler) {
        return straggler.lost_s < noise_s && straggler.share < sure_share;
    });
}

std::vector<Straggler> find_stragglers(std::span<const RankSteps> ranks) {
    if (ranks.size() < 2) return {};
    const Stretches all = cut(ranks);
    if (all.count() < least_slow) return {};
    std::vector<Straggler> stragglers = found(ranks, all, Own::with_sums);
    if (stragglers.empty()) stragglers = found(ranks, all, Own::without_sums);
    take_links(stragglers, ranks);
    return stragglers;
}

std::vector<RankSteps> steps_of_ranks(const RunFigures& run) {
    std::vector<RankSteps> ranks;
    const auto in_all = static_cast<int>(run.ranks.size());
    int virtual_ranks = 0;
    if (const Json* given = run.record.contract.find("virtual_ranks"))
        virtual_ranks = given->is_number_integer() ? given->get<int>() : 0;
    for (const RankFigures& rank : run.ranks)
        ranks.push_back({.rank = rank.facts.rank,
                         .host = rank.facts.host,
                         .steps = rank.steps,
                         .leaves = leaves_of_rank(rank.facts.rank, in_all, virtual_ranks),
                         .data_bound = rank.data_bound,
                         .links = rank.links});
    return ranks;
}

std::vector<Straggler> find_stragglers(const RunFigures& run) {
    std::vector<RankSteps> ranks = steps_of_ranks(run);
    std::erase_if(ranks, [](const RankSteps& rank) { return rank.steps.empty(); });
    std::vector<Straggler> found = find_stragglers(ranks);
    erase_unsure(found);
    return found;
}

}  // namespace lockstep
