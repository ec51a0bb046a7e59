// SPDX-License-Identifier: Apache-2.0
// Ranks that call different collectives under one number may hang, or continue with wrong sums and
// hang later. The rings show the calls side by side. The first number at which they differ is
// blamed, because all later ones differ as a consequence:
//
//     number    811        812              813
//     rank 0    reduce 0   reduce 1         reduce 2
//     rank 1    reduce 0   reduce 2  <--    reduce 3
//     rank 2    reduce 0   reduce 1         reduce 2
//
// What must never happen: the correct ranks are named. The majority counts as correct. With two
// ranks there is none, and then the call that was made before counts (a loop repeats itself; a
// mistake is new).
//
// Tested: run/flight/verdict_test.cpp (minority, two ranks, a mismatch nobody hangs in).

#include "flight/ring_format.hpp"
#include "flight/scene.hpp"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

/// The entries of one channel of one rank, by number.
using Calls = std::map<std::uint64_t, FlightCall>;

Calls calls_of(const RankTrace& trace, std::uint32_t channel) {
    Calls calls;
    for (const FlightEntry& entry : trace.entries)
        if (entry.channel == channel) calls.emplace_hint(calls.end(), entry.seq, entry.call);
    return calls;
}

/// The first number whose calls differ from `reference`; 0: none.
std::uint64_t first_difference(const Calls& calls, const Calls& reference) {
    for (const auto& [seq, call] : calls) {
        const auto found = reference.find(seq);
        if (found != reference.end() && found->second != call) return seq;
    }
    return 0;
}

/// The first number in which any rank differs from the one that got furthest.
std::uint64_t first_difference(const Scene& scene, std::uint32_t channel) {
    Calls furthest;
    for (const RankTrace* trace : scene.traces()) {
        Calls calls = calls_of(*trace, channel);
        const bool is_further =
            !calls.empty() &&
            (furthest.empty() || calls.rbegin()->first > furthest.rbegin()->first);
        if (is_further) furthest = std::move(calls);
    }
    std::uint64_t first = 0;
    for (const RankTrace* trace : scene.traces()) {
        const std::uint64_t seq = first_difference(calls_of(*trace, channel), furthest);
        if (seq != 0 && (first == 0 || seq < first)) first = seq;
    }
    return first;
}

const FlightEntry* entry_of(const RankTrace& trace, std::uint32_t channel, std::uint64_t seq) {
    const auto found = std::ranges::find_if(trace.entries, [&](const FlightEntry& entry) {
        return entry.channel == channel && entry.seq == seq;
    });
    return found == trace.entries.end() ? nullptr : &*found;
}

bool was_called_before(const Scene& scene, const Mismatch& at, const FlightCall& call) {
    return std::ranges::any_of(scene.traces(), [&](const RankTrace* trace) {
        return std::ranges::any_of(trace->entries, [&](const FlightEntry& entry) {
            return entry.channel == at.channel && entry.seq < at.seq && entry.call == call;
        });
    });
}

struct Group {
    FlightCall call;
    Traces ranks;
};

/// Ranks by what they call, the group with the lowest rank first.
std::vector<Group> groups_at(const Scene& scene, std::uint32_t channel, std::uint64_t seq) {
    std::vector<Group> groups;
    for (const RankTrace* trace : scene.traces()) {
        const FlightEntry* entry = entry_of(*trace, channel, seq);
        if (entry == nullptr) continue;
        auto found = std::ranges::find(groups, entry->call, &Group::call);
        if (found == groups.end()) found = groups.insert(groups.end(), {entry->call, {}});
        found->ranks.push_back(trace);
    }
    return groups;
}

/// The majority is right; between equals, the call that has been made before; then the lowest rank.
Mismatch judged(const Scene& scene, std::uint32_t channel, std::uint64_t seq) {
    Mismatch found{.channel = channel, .seq = seq};
    const std::vector<Group> groups = groups_at(scene, channel, seq);
    const auto weight = [&](const Group& group) {
        return std::pair(group.ranks.size(), was_called_before(scene, found, group.call));
    };
    const auto usual = std::ranges::max_element(groups, {}, weight);
    found.usual = usual->call;
    found.rest = usual->ranks;
    for (const Group& group : groups) {
        if (group.call == found.usual) continue;
        if (found.culprits.empty()) found.other = group.call;
        found.culprits.insert(found.culprits.end(), group.ranks.begin(), group.ranks.end());
    }
    std::ranges::sort(found.culprits, {}, &RankTrace::rank);
    return found;
}

}  // namespace

std::optional<Mismatch> find_mismatch(const Scene& scene) {
    for (std::uint32_t channel = 0; channel < ring_channels; ++channel) {
        const std::uint64_t seq = first_difference(scene, channel);
        if (seq != 0) return judged(scene, channel, seq);
    }
    return std::nullopt;
}

}  // namespace lockstep
