// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/stragglers.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Returns "0.42ms": steps may be shorter than duration_text() can show.
std::string step_time_text(double seconds) {
    return seconds < 0.1 ? fmt::format("{:.2g}ms", seconds * 1e3) : duration_text(seconds);
}

/// "rank 3 on n2", "ranks 4-7 on n3", "rank 0 on n1 and rank 3 on n2".
std::string subject(const Straggler& straggler) {
    const auto on = [](const std::string& ranks, const std::string& host) {
        return host.empty() ? ranks : ranks + " on " + host;
    };
    if (!straggler.link) return on(fmt::format("rank {}", straggler.rank), straggler.host);
    const SlowLink& link = *straggler.link;
    const std::string text = on(ranks_text(link.ranks), link.host);
    if (link.other_host.empty()) return text;
    return text + " and " + on(ranks_text(link.other_ranks), link.other_host);
}

bool are_several(const Straggler& straggler) {
    return straggler.link &&
           (straggler.link->ranks.size() > 1 || !straggler.link->other_host.empty());
}

/// Returns the text for two nodes, with the direction if only one is slow.
std::string pair_text(const SlowLink& link, const std::string& now, const std::string& usual) {
    const std::string others = link.are_alone ? usual + " the other way" : "others' " + usual;
    if (link.way == LinkWay::both)
        return fmt::format("the link between them is slow: {}, {}", now, others);
    const bool sends = link.way == LinkWay::sends;
    return fmt::format("the link between them is slow: {} from {} to {}, {}",
                       now,
                       ranks_text(sends ? link.ranks : link.other_ranks),
                       ranks_text(sends ? link.other_ranks : link.ranks),
                       others);
}

std::string link_text(const SlowLink& link) {
    const std::string usual = link_rate_text(link.usual_bytes_per_s),
                      now = link_rate_text(link.bytes_per_s);
    if (!link.other_host.empty()) return pair_text(link, now, usual);
    constexpr std::string_view ways[] = {"", "it sends ", "it receives "};
    return fmt::format("its node's link is slow: {}{}, others' {}",
                       ways[static_cast<std::size_t>(link.way)],
                       now,
                       usual);
}

Json json_of(const SlowLink& link) {
    constexpr std::string_view ways[] = {"both", "sends", "receives"};
    return {{"ranks", link.ranks},
            {"other_host", link.other_host},
            {"other_ranks", link.other_ranks},
            {"way", ways[static_cast<std::size_t>(link.way)]},
            {"bytes_per_s", link.bytes_per_s},
            {"usual_bytes_per_s", link.usual_bytes_per_s}};
}

}  // namespace

std::string_view cause_name(StragglerCause cause) {
    constexpr std::string_view names[] = {
        "data", "copy", "cores", "link", "files", "other", "more"};
    return names[static_cast<std::size_t>(cause)];
}

std::string cause_text(const Straggler& straggler) {
    switch (straggler.cause) {
        case StragglerCause::data:
            return straggler.data_bound.empty()
                       ? "its batches come late"
                       : fmt::format("its batches come late ({})", straggler.data_bound);
        case StragglerCause::copy:
            return "samples are slow to reach its GPU";
        case StragglerCause::cores:
            return "it computes slower (fewer or shared cores, a quota, a lower clock)";
        case StragglerCause::link:
            return straggler.link ? link_text(*straggler.link) : "its link is slow";
        case StragglerCause::files:
            return "its file system is slow";
        case StragglerCause::more:
            return "it computes more leaves than the others";
        case StragglerCause::other:
            break;
    }
    return "it spends time outside of training";
}

std::string stragglers_text(std::span<const Straggler> stragglers) {
    if (stragglers.empty()) return "";
    const Straggler& worst = stragglers.front();
    std::vector<int> others;
    for (const Straggler& straggler : stragglers.subspan(1)) others.push_back(straggler.rank);
    std::ranges::sort(others);
    const bool are_alone = worst.link && worst.link->are_alone;
    return fmt::format("{} {} {} up by {} a step ({:.0f} %): {}{}",
                       subject(worst),
                       are_several(worst) ? "hold" : "holds",
                       are_alone ? "each other" : "the others",
                       step_time_text(worst.lost_s),
                       100 * worst.share,
                       cause_text(worst),
                       others.empty() ? "" : fmt::format("; slow, too: {}", ranks_text(others)));
}

std::string advice(const Straggler& straggler) {
    switch (straggler.cause) {
        case StragglerCause::data:
            return "lockstep bench io on that node measures its storage; if data are streamed, "
                   "--data-mode resident reads them once";
        case StragglerCause::copy:
            return "see 'copy' in docs/gpu.md";
        case StragglerCause::cores:
            return fmt::format(
                "top on {} shows other programs on its cores; lockstep map, which cores ranks have",
                straggler.host.empty() ? "that node" : straggler.host);
        case StragglerCause::link:
            return straggler.link
                       ? fmt::format(
                             "lockstep bench comm on the same nodes measures their links; lockstep "
                             "doctor on {} checks its network",
                             straggler.host)
                       : "lockstep bench comm, with the same ranks, measures their links";
        case StragglerCause::files:
            return "save less often (--checkpoint-every), or put the run on a faster file system";
        case StragglerCause::more:
            return "ranks that divide the virtual ranks evenly (--virtual-ranks of a new run)";
        case StragglerCause::other:
            break;
    }
    return fmt::format("lockstep logs RUN --rank {} shows its phases; top, what else runs there",
                       straggler.rank);
}

Json json_of(const Straggler& straggler) {
    return {{"rank", straggler.rank},
            {"host", straggler.host},
            {"cause", cause_name(straggler.cause)},
            {"lost_s", straggler.lost_s},
            {"share", straggler.share},
            {"persistence", straggler.persistence},
            {"data_bound", straggler.data_bound.empty() ? Json() : Json(straggler.data_bound)},
            {"link", straggler.link ? json_of(*straggler.link) : Json()}};
}

}  // namespace lockstep
