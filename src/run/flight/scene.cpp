// SPDX-License-Identifier: Apache-2.0
// Answers verdict.cpp's questions from all traces. Rings are read one after another while their
// ranks continue, so that no two show the same moment. Answers depend only on lasting facts: a
// collective that has been pending for long, a process that is gone, a heartbeat that is old.
//
// What must never happen: a rank on another host counts as dead because this host does not see its
// process. There only the heartbeat counts, and only after half a minute. For ranks that have
// ended, time ends with their last heartbeat: a trace gives the same answer a day later.
//
// Ranks that call different collectives under one number may hang, or continue with wrong sums and
// hang later. The rings show the calls side by side. The first number at which they differ is
// blamed, because all later ones differ as a consequence:
//
//     number    811        812              813
//     rank 0    reduce 0   reduce 1         reduce 2
//     rank 1    reduce 0   reduce 2  <--    reduce 3
//     rank 2    reduce 0   reduce 1         reduce 2
//
// What must never happen there: the correct ranks are named. The majority counts as correct. With
// two ranks there is none, and then the call that was made before counts (a loop repeats itself; a
// mistake is new).
//
// Tested: run/flight/verdict_test.cpp (minority, two ranks, a mismatch nobody hangs in).
#include "flight/scene.hpp"

#include "lockstep/core/signals.hpp"

#include "flight/ring_format.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The oldest collective in which the rank itself waits, not only announced.
const FlightEntry* waited_for(const RankTrace& trace) {
    for (const FlightEntry& entry : trace.entries)
        if (entry.started_s > 0 && entry.ended_s == 0) return &entry;
    return nullptr;
}

template <class Test>
std::uint64_t last_seq(const RankTrace& trace, std::uint32_t channel, Test&& test) {
    std::uint64_t last = 0;
    for (const FlightEntry& entry : trace.entries)
        if (entry.channel == channel && test(entry)) last = std::max(last, entry.seq);
    return last;
}

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
    for (const RankTrace* trace : scene.traces) {
        Calls calls = calls_of(*trace, channel);
        const bool is_further =
            !calls.empty() &&
            (furthest.empty() || calls.rbegin()->first > furthest.rbegin()->first);
        if (is_further) furthest = std::move(calls);
    }
    std::uint64_t first = 0;
    for (const RankTrace* trace : scene.traces) {
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
    return std::ranges::any_of(scene.traces, [&](const RankTrace* trace) {
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
    for (const RankTrace* trace : scene.traces) {
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

/// "in data wait", "in forward", "in communication", ...
std::string activity_text(const RankTrace& trace) {
    if (trace.phase == Phase::data) return "in data wait";
    if (trace.phase == Phase::comm || trace.phase == Phase::wait) return "in communication";
    if (trace.phase == Phase::checkpoint) return "writing a checkpoint";
    if (trace.phase == Phase::evaluate) return "evaluating";
    if (trace.phase == Phase::other) return trace.is_running ? "between steps" : "setting up";
    return fmt::format("in {}", phase_name(trace.phase));
}

}  // namespace

Scene::Scene(std::span<const RankTrace> all, double now_s, double silent_s)
    : now_s_(now_s), silent_s_(silent_s) {
    for (const RankTrace& trace : all)
        if (trace.damage.empty()) traces.push_back(&trace);
    find_missing(all);
    find_waiting();
}

void Scene::find_missing(std::span<const RankTrace> all) {
    int ranks = 0;
    for (const RankTrace* trace : traces) ranks = std::max(ranks, trace->ranks);
    std::vector<bool> present(static_cast<std::size_t>(ranks));
    for (const RankTrace& trace : all)
        if (trace.rank < ranks) present[static_cast<std::size_t>(trace.rank)] = true;
    for (int rank = 0; rank < ranks; ++rank)
        if (!present[static_cast<std::size_t>(rank)]) missing.push_back(rank);
}

// The channel in which somebody waits longest; in it, the earliest collective that is waited in.
void Scene::find_waiting() {
    for (const RankTrace* trace : traces) {
        const FlightEntry* entry = waited_for(*trace);
        if (entry == nullptr || trace->end == FlightEnd::finished) continue;
        const double waited_s = seen_until_s(*trace) - entry->started_s;
        if (waiting.seq != 0 && waited_s <= waiting.longest_s) continue;
        waiting.channel = entry->channel;
        waiting.seq = entry->seq;
        waiting.longest_s = waited_s;
    }
    if (waiting.seq == 0) return;
    const auto waits = [&](const FlightEntry* entry) {
        return entry != nullptr && entry->channel == waiting.channel;
    };
    for (const RankTrace* trace : traces)
        if (const auto* entry = waited_for(*trace); waits(entry) && entry->seq <= waiting.seq) {
            waiting.seq = entry->seq;
            waiting.call = entry->call;
        }
    waiting.longest_s = 0;
    for (const RankTrace* trace : traces)
        if (const auto* entry = waited_for(*trace); waits(entry) && entry->seq == waiting.seq) {
            waiting.ranks.push_back(trace);
            waiting.longest_s =
                std::max(waiting.longest_s, seen_until_s(*trace) - entry->started_s);
        }
}

bool Scene::is_gone(const RankTrace& trace) const {
    const bool is_lost =
        trace.life == Life::gone || trace.life == Life::silent || trace.life == Life::cut_off;
    return is_lost || (trace.life == Life::elsewhere && heartbeat_age_s(trace) > silent_s_);
}

bool Scene::is_alive(const RankTrace& trace) const {
    return trace.end == FlightEnd::none && trace.life != Life::stopped && !is_gone(trace);
}

bool Scene::is_gone_silently(const RankTrace& trace) const {
    return is_gone(trace) && trace.end == FlightEnd::none &&
           (trace.signal == 0 || is_crash(trace.signal));
}

double Scene::seen_until_s(const RankTrace& trace) const {
    const bool is_over = is_gone(trace) || trace.end != FlightEnd::none;
    return is_over ? std::min(now_s_, trace.heartbeat_s) : now_s_;
}

std::uint64_t Scene::last_enqueued(const RankTrace& trace) const {
    return last_seq(trace, waiting.channel, [](const FlightEntry&) { return true; });
}

std::uint64_t Scene::last_finished(const RankTrace& trace) const {
    return last_seq(trace, waiting.channel, [](const FlightEntry& e) { return e.ended_s > 0; });
}

std::string Scene::number_text(std::uint32_t channel, std::uint64_t seq) const {
    const auto several = std::ranges::find_if(
        traces, [&](const RankTrace* trace) { return trace->channels.size() > 1; });
    if (several == traces.end() || channel >= (*several)->channels.size())
        return fmt::format("#{}", seq);
    return fmt::format("{} #{}", (*several)->channels[channel], seq);
}

std::string Scene::waiting_text() const {
    if (waiting.seq == 0) return "nobody waits";
    std::uint64_t finished = waiting.seq - 1;
    for (const RankTrace* trace : traces) finished = std::min(finished, last_finished(*trace));
    const auto ranks = numbers_of(waiting.ranks);
    return fmt::format("{}; {} {} in {} {} since {}",
                       finished == 0
                           ? "no collective is finished on all ranks"
                           : "all ranks finished " + number_text(waiting.channel, finished),
                       ranks_text(ranks),
                       ranks.size() == 1 ? "waits" : "wait",
                       number_text(waiting.channel, waiting.seq),
                       text_of(waiting.call),
                       duration_text(waiting.longest_s));
}

std::string Scene::whereabouts_text(const RankTrace& trace) const {
    const std::uint64_t finished = last_finished(trace);
    const std::string last = finished == 0
                                 ? "has not finished any collective"
                                 : "last finished " + number_text(waiting.channel, finished);
    const double since_s = std::max(seen_until_s(trace) - trace.phase_since_s, 0.0);
    const std::string activity = activity_text(trace),
                      begin = fmt::format("rank {} {}", trace.rank, last);
    if (!is_gone(trace) && trace.end == FlightEnd::none)
        return fmt::format("{} and is {} since {}", begin, activity, duration_text(since_s));
    constexpr double shortest_s = 0.01;
    return fmt::format("{} and was {}{} when it {}",
                       begin,
                       activity,
                       since_s < shortest_s ? "" : " for " + duration_text(since_s),
                       trace.end == FlightEnd::none ? "was last heard" : "ended");
}

std::string rank_text(const RankTrace& trace) {
    return fmt::format("rank {} ({}, pid {})", trace.rank, trace.host, trace.pid);
}

std::string ranks_text(const Traces& traces) {
    return traces.size() == 1 ? rank_text(*traces.front()) : ranks_text(numbers_of(traces));
}

std::vector<int> numbers_of(const Traces& traces) {
    std::vector<int> ranks;
    for (const RankTrace* trace : traces) ranks.push_back(trace->rank);
    return ranks;
}

RankPosition position_of(const RankTrace& trace) {
    RankPosition position;
    for (const FlightEntry& entry : trace.entries)
        if (entry.ended_s == 0) {
            position.in = &entry;
            break;
        }
    if (position.in != nullptr)
        position.channel = position.in->channel;
    else if (!trace.entries.empty())
        position.channel = trace.entries.back().channel;
    for (const FlightEntry& entry : trace.entries)
        if (entry.channel == position.channel && entry.ended_s > 0)
            position.finished = std::max(position.finished, entry.seq);
    return position;
}

std::optional<Mismatch> find_mismatch(const Scene& scene) {
    for (std::uint32_t channel = 0; channel < ring_channels; ++channel) {
        const std::uint64_t seq = first_difference(scene, channel);
        if (seq != 0) return judged(scene, channel, seq);
    }
    return std::nullopt;
}

}  // namespace lockstep
