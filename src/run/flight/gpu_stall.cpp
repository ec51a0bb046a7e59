// SPDX-License-Identifier: Apache-2.0
// Hosts enqueue the work of GPUs and run ahead, so that all of them wait in the same collective
// whichever GPU is stuck. Each host has recorded its GPU's progress, and the ranks whose parts have
// not arrived there:
//
//     rank 0   in #813    has the part of 1, misses that of 2
//     rank 1   in #813    has the part of 0, misses that of 2
//     rank 2   in #813    has none                     <- its part alone is missing elsewhere
//     rank 3   before #813: something on its own GPU does not end    <- or this one, if there is
//     one
//
// What must never happen: a stuck rank blames another. Only a rank that has some other rank's part
// is believed about those that it misses; of two ranks this rule names none.
//
// Tested: run/flight/gpu_stall_test.cpp, e2e/device_test.cpp.

#include "flight/scene.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* nccl_fix =
    "check these nodes' links, and dmesg for Xid; logs/iN/rank-NNNNN.log says which path NCCL uses "
    "between them; start the same command again: it resumes from the newest checkpoint, if there "
    "is one";

/// The part of `from` has not arrived at `at`.
struct Missing {
    const RankTrace* from;
    const RankTrace* at;
};

/// The first group that any GPU has not finished.
struct Stall {
    const Scene& scene;
    Traces behind;   ///< in it, or before it
    Traces further;  ///< ranks that have finished it
};

Stall stall_in(const Scene& scene) {
    Stall stall{scene, {}, {}};
    const Traces known = scene.where([&](const RankTrace& t) {
        return t.gpu.seq > 0 && t.gpu.channel == scene.waiting.channel;
    });
    const auto group_of = [](const RankTrace* t) { return std::pair(t->gpu.seq, t->gpu.round); };
    const auto first = std::ranges::min_element(known, {}, group_of);
    for (const RankTrace* trace : known)
        (group_of(trace) == group_of(*first) ? stall.behind : stall.further).push_back(trace);
    return stall;
}

Traces at(const Stall& stall, GpuPlace place) {
    Traces found = stall.behind;
    std::erase_if(found, [&](const RankTrace* t) { return t->gpu.place != place; });
    return found;
}

std::vector<Missing> missing_parts(const Stall& stall) {
    std::map<int, const RankTrace*> by_rank;
    for (const RankTrace* trace : stall.scene.traces) by_rank[trace->rank] = trace;
    std::vector<Missing> parts;
    for (const RankTrace* at : stall.behind)
        for (const int rank : at->gpu.missing)
            if (const auto from = by_rank.find(rank); from != by_rank.end())
                parts.push_back({from->second, at});
    return parts;
}

/// Returns the rank at one end of all missing parts; else all ranks whose parts are missing, unless
/// one of them is believed, too.
Traces suspects(const Stall& stall) {
    std::vector<Missing> parts = missing_parts(stall);
    std::erase_if(parts, [](const Missing& part) { return part.at->gpu.arrived == 0; });
    std::map<const RankTrace*, std::size_t> sent, touched;
    for (const auto& [from, at] : parts) {
        ++sent[from];
        ++touched[from];
        ++touched[at];
    }
    const Traces senders = stall.scene.where([&](const RankTrace& t) { return sent.contains(&t); });
    Traces ends = senders;
    std::erase_if(ends, [&](const RankTrace* t) { return touched[t] < parts.size(); });
    if (ends.size() == 1) return ends;
    const auto is_sender = [&](const Missing& part) { return sent.contains(part.at); };
    return std::ranges::any_of(parts, is_sender) ? Traces{} : senders;
}

std::string call_text(const Stall& stall) {
    const RankTrace& trace = *stall.behind.front();
    const auto entry = std::ranges::find_if(trace.entries, [&](const FlightEntry& e) {
        return e.channel == trace.gpu.channel && e.seq == trace.gpu.seq;
    });
    const std::string number = stall.scene.number_text(trace.gpu.channel, trace.gpu.seq);
    return entry == trace.entries.end() ? number : number + " " + text_of(entry->call);
}

std::string stall_why(const Stall& stall) {
    constexpr std::size_t most_shown = 4;
    std::vector<std::string> sentences{stall.scene.waiting_text()};
    for (const RankTrace* trace : stall.behind)
        if (!trace->gpu.missing.empty() && sentences.size() <= most_shown)
            sentences.push_back(fmt::format("at rank {} the {} of {} {} not arrived",
                                            trace->rank,
                                            trace->gpu.missing.size() == 1 ? "part" : "parts",
                                            ranks_text(trace->gpu.missing),
                                            trace->gpu.missing.size() == 1 ? "has" : "have"));
    if (sentences.size() == 1) sentences.emplace_back("whose part has not arrived is not known");
    if (!stall.further.empty())
        sentences.push_back(ranks_text(numbers_of(stall.further)) + " finished theirs");
    sentences.emplace_back("NCCL reports no error");
    return fmt::format("{}", fmt::join(sentences, "; "));
}

Verdict blaming(const Stall& stall, const Traces& culprits, const std::string& how) {
    const bool is_one = culprits.size() == 1;
    return {.trouble = Trouble::stuck_gpu,
            .culprits = numbers_of(culprits),
            .what = fmt::format("the GPU{} of {} {} {} {}",
                                is_one ? "" : "s",
                                ranks_text(culprits),
                                is_one ? "is" : "are",
                                how,
                                call_text(stall)),
            .why = stall_why(stall),
            .fix = nccl_fix};
}

/// "between rank 0 (a, pid 4) and rank 1 (b, pid 5)", "between a and b", "at or from a"; "" where
/// what is missing has no such ends.
std::string ends_text(const std::vector<Missing>& parts) {
    std::map<int, const RankTrace*> ranks;
    std::map<std::string_view, std::size_t> touched;  // parts that cross the host's border
    for (const auto& [from, at] : parts) {
        ranks[from->rank] = from;
        ranks[at->rank] = at;
        if (from->host == at->host) continue;
        ++touched[from->host];
        ++touched[at->host];
    }
    if (ranks.size() == 2)
        return fmt::format("between {} and {}",
                           rank_text(*ranks.begin()->second),
                           rank_text(*ranks.rbegin()->second));
    std::erase_if(touched, [&](const auto& host) { return host.second < parts.size(); });
    if (touched.size() == 2)
        return fmt::format("between {} and {}", touched.begin()->first, touched.rbegin()->first);
    return touched.size() == 1 ? fmt::format("at or from {}", touched.begin()->first) : "";
}

/// No GPU stands out: what is known of the ways between them.
Verdict between(const Stall& stall) {
    const std::string ends = ends_text(missing_parts(stall));
    return {.trouble = Trouble::network_slow,
            .what = ends.empty() ? fmt::format("the GPUs of {} are in {}, and it does not end",
                                               ranks_text(numbers_of(stall.behind)),
                                               call_text(stall))
                                 : fmt::format("nothing arrives {} in {}", ends, call_text(stall)),
            .why = stall_why(stall),
            .fix = nccl_fix};
}

}  // namespace

Verdict gpu_verdict(const Scene& scene) {
    const Stall stall = stall_in(scene);
    if (stall.behind.empty()) return {};
    if (const Traces silent = at(stall, GpuPlace::silent); !silent.empty())
        return blaming(stall, silent, "without an answer, even to a copy on another stream, in");
    const Traces before = at(stall, GpuPlace::before);
    if (!before.empty() && (before.size() < stall.behind.size() || !stall.further.empty()))
        return blaming(stall, before, "still in other work before");
    if (stall.behind.size() == 1 && !stall.further.empty())
        return blaming(stall, stall.behind, "stuck in");
    if (const Traces found = suspects(stall); !found.empty())
        return blaming(stall, found, "stuck in");
    return between(stall);
}

}  // namespace lockstep
