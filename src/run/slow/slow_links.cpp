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
// Tested: run/stragglers_test.cpp.
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
std::vector<WayBetween> ways_of(std::span<const RankLinks> ranks,
                                const std::map<int, int>& host_of) {
    std::map<std::pair<int, int>, LinkTimes> sums;
    for (const RankLinks& rank : ranks)
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

Network network_of(std::span<const RankLinks> ranks) {
    Network network;
    std::map<int, int> host_of;
    for (const RankLinks& rank : ranks) {
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

}  // namespace

std::vector<SlowLink> find_slow_links(std::span<const RankLinks> ranks) {
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

std::string link_rate_clause(std::span<const RankLinks> ranks) {
    const Network network = network_of(ranks);
    if (network.ways.empty()) return "";
    return "; from node to node a rank gets " + link_rate_text(quantile(network.ways, 0.5));
}

std::string link_rate_text(double bytes_per_s) {
    if (bytes_per_s >= 1e9) return fmt::format("{:.1f} GB/s", bytes_per_s / 1e9);
    return fmt::format("{:.{}f} MB/s", bytes_per_s / 1e6, bytes_per_s < 10e6 ? 1 : 0);
}

}  // namespace lockstep
