// SPDX-License-Identifier: Apache-2.0
// Each node exchanges messages with a few others. So the common part of the slow connections shows
// which link is slow:
//
//     n1 -> n2  1.1 GB/s      n2 -> n1    48 MB/s  *
//     n1 -> n3  1.0 GB/s      n2 -> n4    51 MB/s  *
//     n4 -> n3  1.1 GB/s      n3 -> n1   1.1 GB/s
//
// All messages that n2 sends are slow, and some that n1 and n4 receive: the link of n2 is slow.
//
// A node is suspected if all its connections out, or in, are slow. The suspect with the most slow
// connections comes first, and explains them. If two suspects explain the same ones, the connection
// between them is slow; so is a slow connection that no suspect explains.
//
// The words for these and for all other stragglers are here, too.
//
// Tested: run/stragglers_test.cpp.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/stragglers.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double slow_part = 0.4;           // of what is usual, all ways of a node
constexpr double slow_part_of_two = 0.25;   // between two nodes: few messages, so more by chance
constexpr std::int64_t least_messages = 2;  // of a way
constexpr int most_turns = 8;               // more slow ways say that the network is what it is

/// From one node to another.
struct WayBetween {
    int from = 0, to = 0;  ///< places in Network::hosts
    double bytes = 0, seconds = 0;
    bool is_slow = false, is_explained = false;

    double rate() const { return bytes / seconds; }
    bool touches(int host) const { return from == host || to == host; }
};

struct Network {
    std::vector<std::string> hosts;
    std::vector<std::vector<int>> ranks;  ///< by host
    std::vector<WayBetween> ways;
    double usual = 0;
};

int number_of(Network& network, const std::string& host) {
    const auto found = std::ranges::find(network.hosts, host);
    if (found == network.hosts.end()) {
        network.hosts.push_back(host);
        network.ranks.emplace_back();
        return static_cast<int>(network.hosts.size()) - 1;
    }
    return static_cast<int>(found - network.hosts.begin());
}

/// Returns all messages that ranks of one node have timed from ranks of another.
std::vector<WayBetween> ways_of(std::span<const RankSteps> ranks,
                                const std::map<int, int>& host_of) {
    std::map<std::pair<int, int>, LinkTimes> sums;
    for (const RankSteps& rank : ranks)
        for (const LinkTimes& times : rank.links) {
            const auto from = host_of.find(times.from);
            const int to = host_of.at(rank.rank);
            if (from == host_of.end() || from->second == to) continue;
            LinkTimes& sum = sums[{from->second, to}];
            sum.messages += times.messages;
            sum.bytes += times.bytes;
            sum.seconds += times.seconds;
        }
    std::vector<WayBetween> ways;
    for (const auto& [ends, sum] : sums)
        if (sum.messages >= least_messages && sum.seconds > 0)
            ways.push_back({.from = ends.first,
                            .to = ends.second,
                            .bytes = static_cast<double>(sum.bytes),
                            .seconds = sum.seconds});
    return ways;
}

/// The rate that so many of the ways fall short of, from 0 to 1.
double quantile(const std::vector<WayBetween>& ways, double share) {
    std::vector<double> rates;
    for (const WayBetween& way : ways) rates.push_back(way.rate());
    std::ranges::sort(rates);
    return rates[static_cast<std::size_t>(share * static_cast<double>(rates.size()))];
}

Network network_of(std::span<const RankSteps> ranks) {
    Network network;
    std::map<int, int> host_of;
    for (const RankSteps& rank : ranks) {
        host_of[rank.rank] = number_of(network, rank.host);
        network.ranks[static_cast<std::size_t>(host_of[rank.rank])].push_back(rank.rank);
    }
    network.ways = ways_of(ranks, host_of);
    if (network.ways.empty()) return network;
    // With three nodes, one slow node slows two thirds of the connections.
    network.usual = quantile(network.ways, 0.75);
    for (WayBetween& way : network.ways) way.is_slow = way.rate() < slow_part * network.usual;
    return network;
}

/// The connections that one node explains.
struct Suspect {
    int host = -1;
    LinkWay way = LinkWay::both;
    std::vector<WayBetween*> explains{};
};

Suspect suspect_of(Network& network, int host) {
    Suspect suspect{.host = host};
    bool sends = false, receives = false;
    for (const auto end : {&WayBetween::from, &WayBetween::to}) {
        const auto is_own = [&](const WayBetween& way) { return way.*end == host; };
        const auto is_fast = [&](const WayBetween& way) { return is_own(way) && !way.is_slow; };
        if (std::ranges::any_of(network.ways, is_fast)) continue;
        for (WayBetween& way : network.ways) {
            if (!is_own(way)) continue;
            (end == &WayBetween::from ? sends : receives) = true;
            if (!way.is_explained) suspect.explains.push_back(&way);
        }
    }
    if (sends != receives) suspect.way = sends ? LinkWay::sends : LinkWay::receives;
    return suspect;
}

/// The slowest way, and the way back.
Suspect slowest_pair(Network& network) {
    WayBetween* slowest = nullptr;
    for (WayBetween& way : network.ways)
        if (way.is_slow && !way.is_explained && (!slowest || way.rate() < slowest->rate()))
            slowest = &way;
    Suspect pair{.host = slowest->from};
    for (WayBetween& way : network.ways)
        if (way.is_slow && way.touches(slowest->from) && way.touches(slowest->to))
            pair.explains.push_back(&way);
    return pair;
}

/// Returns the other suspect for the same connections, or -1.
int rival_of(Network& network, const Suspect& suspect) {
    const WayBetween& first = *suspect.explains.front();
    const int other = first.from == suspect.host ? first.to : first.from;
    const Suspect rival = suspect_of(network, other);
    const bool explains_all = std::ranges::all_of(suspect.explains, [&](WayBetween* way) {
        return std::ranges::find(rival.explains, way) != rival.explains.end();
    });
    return explains_all ? other : -1;
}

/// Takes what it explains along.
SlowLink taken(Network& network, const Suspect& suspect, int other) {
    const auto host = static_cast<std::size_t>(suspect.host);
    SlowLink link{.host = network.hosts[host],
                  .ranks = network.ranks[host],
                  .way = suspect.way,
                  .usual_bytes_per_s = network.usual,
                  .are_alone = network.hosts.size() == 2};
    if (other >= 0) {
        link.other_host = network.hosts[static_cast<std::size_t>(other)];
        link.other_ranks = network.ranks[static_cast<std::size_t>(other)];
    }
    double bytes = 0, seconds = 0;
    for (WayBetween* way : suspect.explains) {
        way->is_explained = true;
        bytes += way->bytes;
        seconds += way->seconds;
    }
    link.bytes_per_s = bytes / seconds;
    return link;
}

SlowLink next_link(Network& network) {
    Suspect worst;
    for (int host = 0; host < static_cast<int>(network.hosts.size()); ++host) {
        Suspect suspect = suspect_of(network, host);
        if (suspect.explains.size() > worst.explains.size()) worst = std::move(suspect);
    }
    if (!worst.explains.empty()) return taken(network, worst, rival_of(network, worst));
    const Suspect pair = slowest_pair(network);
    const WayBetween& first = *pair.explains.front();
    return taken(network, pair, first.from == pair.host ? first.to : first.from);
}

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

std::vector<SlowLink> find_slow_links(std::span<const RankSteps> ranks) {
    Network network = network_of(ranks);
    std::vector<SlowLink> links;
    const auto is_open = [](const WayBetween& way) { return way.is_slow && !way.is_explained; };
    for (int turn = 0; turn < most_turns && std::ranges::any_of(network.ways, is_open); ++turn) {
        SlowLink link = next_link(network);
        if (link.other_host.empty() || link.bytes_per_s < slow_part_of_two * network.usual)
            links.push_back(std::move(link));
    }
    return links;
}

std::string link_rate_clause(std::span<const RankSteps> ranks) {
    const Network network = network_of(ranks);
    if (network.ways.empty()) return "";
    return "; from node to node a rank gets " + link_rate_text(quantile(network.ways, 0.5));
}

std::string link_rate_text(double bytes_per_s) {
    if (bytes_per_s >= 1e9) return fmt::format("{:.1f} GB/s", bytes_per_s / 1e9);
    return fmt::format("{:.{}f} MB/s", bytes_per_s / 1e6, bytes_per_s < 10e6 ? 1 : 0);
}

std::string_view cause_name(StragglerCause cause) {
    constexpr std::string_view names[] = {
        "data", "copy", "cores", "link", "files", "other", "more"};
    return names[static_cast<std::size_t>(cause)];
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
