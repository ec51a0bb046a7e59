// SPDX-License-Identifier: Apache-2.0
#include "nccl/stripe_moves.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

// Returns the partial into which `partials` merge, and fills in their merges; nothing if they are
// no whole subtree.
std::optional<Partial> merge_all(std::span<const Partial> partials,
                                 std::vector<int>& merges_after) {
    std::vector<Partial> stack;
    for (const Partial& partial : partials) {
        stack.push_back(partial);
        merges_after.push_back(merge_siblings(stack, [](int, int) {}));
    }
    if (stack.size() != 1) return {};
    return stack.front();
}

// GPUs of each node, where all have as many and a node's ranks follow each other; else 0.
int ranks_of_node(std::span<const std::string> hosts) {
    const auto changed =
        std::ranges::find_if(hosts, [&](const std::string& host) { return host != hosts.front(); });
    const auto size = static_cast<std::size_t>(changed - hosts.begin());
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        const std::size_t first = rank / size * size;
        if (hosts[rank] != hosts[first]) return 0;
        if (first > 0 && hosts[first] == hosts[first - size]) return 0;
    }
    return hosts.size() % size == 0 ? static_cast<int>(size) : 0;
}

StripeTeam team_of_all(const TreePlan& plan) {
    StripeTeam team;
    team.ranks.resize(static_cast<std::size_t>(plan.ranks()));
    std::iota(team.ranks.begin(), team.ranks.end(), 0);
    for (const int rank : team.ranks) team.stripes.push_back({rank});
    team.partials.assign(plan.partials().begin(), plan.partials().end());
    team.merges_after.assign(plan.merges_after().begin(), plan.merges_after().end());
    return team;
}

// Of the node whose first rank is `first`, and what it adds up to; nothing where that is no
// subtree.
std::optional<Partial> team_inside(const TreePlan& plan, int first, int size, StripeTeam& team) {
    for (int rank = first; rank < first + size; ++rank) {
        team.ranks.push_back(rank);
        std::vector<int>& owners = team.stripes.emplace_back();  // with its place on their nodes
        for (int owner = rank % size; owner < plan.ranks(); owner += size) owners.push_back(owner);
        const auto partials = plan.partials_of_rank(rank);
        team.partials.insert(team.partials.end(), partials.begin(), partials.end());
    }
    return merge_all(team.partials, team.merges_after);
}

// Both teams of `rank`, or none.
std::vector<StripeTeam> teams_of_nodes(const TreePlan& plan, int rank, int size) {
    StripeTeam inside, between;
    for (int first = 0; first < plan.ranks(); first += size) {
        StripeTeam node;
        const auto sum = team_inside(plan, first, size, node);
        if (!sum) return {};
        const int there = first + rank % size;
        between.ranks.push_back(there);
        between.stripes.push_back({there});
        between.partials.push_back({sum->first, sum->level, there, 0});
        if (first == rank / size * size) inside = std::move(node);
    }
    if (!merge_all(between.partials, between.merges_after)) return {};
    return {std::move(inside), std::move(between)};
}

// The part of `rank`, without what is empty.
std::vector<FloatRange> stripes_of(const FlatLayout& layout,
                                   const StripeTeam& team,
                                   int rank,
                                   std::size_t bucket) {
    const auto place = std::ranges::find(team.ranks, rank) - team.ranks.begin();
    std::vector<FloatRange> stripes;
    for (const int owner : team.stripes[static_cast<std::size_t>(place)]) {
        const FloatRange stripe = layout.stripe(bucket, owner, team.of);
        if (stripe.size() > 0) stripes.push_back(stripe);
    }
    return stripes;
}

}  // namespace

std::vector<StripeTeam> stripe_teams(const TreePlan& plan,
                                     int rank,
                                     std::span<const std::string> hosts) {
    const int size = plan.summation() == Summation::tree ? ranks_of_node(hosts) : 0;
    std::vector<StripeTeam> teams;
    if (size > 1 && size < plan.ranks()) teams = teams_of_nodes(plan, rank, size);
    if (teams.empty()) teams.push_back(team_of_all(plan));
    for (StripeTeam& team : teams) {
        team.rank = rank;
        team.of = plan.ranks();
    }
    return teams;
}

StripeMoves stripe_moves(const FlatLayout& layout, const StripeTeam& team, std::size_t bucket) {
    StripeMoves moves;
    for (const int peer : team.ranks) {
        if (peer == team.rank) continue;
        for (const FloatRange& range : stripes_of(layout, team, peer, bucket))
            for (const Partial& partial : team.partials)
                if (partial.rank == team.rank) moves.sends.push_back({peer, partial.slot, range});
    }
    std::size_t at = 0;
    for (const FloatRange& range : stripes_of(layout, team, team.rank, bucket)) {
        moves.sums.push_back({range, at});
        for (const Partial& partial : team.partials) {
            if (partial.rank == team.rank) continue;
            moves.receives.push_back({partial.rank, {at, at + range.size()}});
            at += range.size();
        }
    }
    return moves;
}

std::size_t most_received(const FlatLayout& layout, std::span<const StripeTeam> teams) {
    std::size_t most = 0;
    for (const StripeTeam& team : teams)
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const StripeMoves moves = stripe_moves(layout, team, b);
            if (!moves.receives.empty()) most = std::max(most, moves.receives.back().place.end);
        }
    return most;
}

StripeMoves value_moves(const FlatLayout& layout, const StripeTeam& team, std::size_t bucket) {
    StripeMoves moves;
    for (const int peer : team.ranks) {
        if (peer == team.rank) continue;
        for (const FloatRange& range : stripes_of(layout, team, team.rank, bucket))
            moves.sends.push_back({peer, 0, range});
        for (const FloatRange& range : stripes_of(layout, team, peer, bucket))
            moves.receives.push_back({peer, range});
    }
    return moves;
}

}  // namespace lockstep
