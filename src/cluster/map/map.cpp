// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_slots = 1 << 16;

Error bad_hosts(std::string_view text, const std::string& why) {
    return Error("E607",
                 fmt::format("hosts '{}' cannot be read", text),
                 why,
                 "write them as mpirun does: --hosts n1:4,n2:4");
}

HostSlots parse_host(std::string_view text, const std::string& word) {
    const auto colon = word.rfind(':');
    const auto name = word.substr(0, colon);
    check(!name.empty() && name.find_first_of(" \t/") == name.npos, [&] {
        return bad_hosts(text, fmt::format("'{}' does not begin with a host's name", word));
    });
    if (colon == word.npos) return {name, 1};
    const auto slots = parse_integer(word.substr(colon + 1));
    check(slots && *slots >= 1 && *slots <= most_slots, [&] {
        return bad_hosts(text, fmt::format("'{}' is no number of slots", word.substr(colon + 1)));
    });
    return {name, static_cast<int>(*slots)};
}

/// The next host after `host`, around the end, that has a slot left.
std::size_t next_free(std::span<const HostSlots> hosts,
                      const std::vector<int>& used,
                      std::size_t host) {
    while (used[host] >= hosts[host].slots) host = (host + 1) % hosts.size();
    return host;
}

constexpr std::size_t most_shown = 8;

template <class Value>
void compare(int rank,
             const char* noun,
             const Value& planned,
             const Value& found,
             std::vector<std::string>& lines) {
    if (planned != found)
        lines.push_back(
            fmt::format("rank {}: {} {} is planned, {} is found", rank, noun, planned, found));
}

std::string or_none(const std::string& text) {
    return text.empty() ? "none" : text;
}

/// A rank may use fewer cores than the plan gives it, but no others.
void compare_cores(const RankSeat& planned,
                   const RankSeat& found,
                   std::vector<std::string>& lines) {
    if (planned.cpus.empty() || std::ranges::includes(planned.cpus, found.cpus)) return;
    lines.push_back(fmt::format("rank {}: cores {} are planned, {} are found",
                                planned.rank,
                                cpu_list_text(planned.cpus),
                                cpu_list_text(found.cpus)));
}

void compare_gpus(const RankSeat& planned, const RankSeat& found, std::vector<std::string>& lines) {
    compare(planned.rank, "GPU", or_none(planned.gpu), or_none(found.gpu), lines);
    const bool has_uuids = !planned.gpu_uuid.empty() && !found.gpu_uuid.empty();
    if (has_uuids && planned.gpu == found.gpu)
        compare(planned.rank, "GPU", planned.gpu_uuid, found.gpu_uuid, lines);
}

std::vector<LaunchedRank> ranks_of(std::span<const RankOnHost> ranks,
                                   int host,
                                   const std::vector<int>& cpus) {
    std::vector<LaunchedRank> mine;
    for (const auto& rank : ranks)
        if (rank.host == host) mine.push_back({rank.rank, rank.local_rank, cpus, {}});
    return mine;
}

void add(Placement&& part, bool is_described, Placement& plan) {
    for (auto& seat : part.seats) {
        seat.host_id.clear();  // a plan outlives a boot
        seat.is_bound = false;
        if (!is_described) seat.gpu_uuid.clear();
        plan.seats.push_back(std::move(seat));
    }
    for (auto& warning : part.warnings) plan.warnings.push_back(std::move(warning));
}

Placement names_only(std::span<const HostSlots> hosts, std::span<const RankOnHost> ranks) {
    Placement plan;
    for (const auto& rank : ranks)
        plan.seats.push_back({.rank = rank.rank,
                              .host = hosts[static_cast<std::size_t>(rank.host)].host,
                              .local_rank = rank.local_rank,
                              .threads = 0});
    return plan;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
    std::vector<HostSlots> hosts;
    std::istringstream words{std::string(text)};
    for (std::string word; std::getline(words, word, ',');) {
        const auto host = parse_host(text, word);
        const auto known = std::ranges::find(hosts, host.host, &HostSlots::host);
        if (known == hosts.end())
            hosts.push_back(host);
        else
            known->slots += host.slots;
    }
    check(!hosts.empty() && !text.ends_with(','),
          [&] { return bad_hosts(text, "a host's name is missing"); });
    return hosts;
}

std::vector<RankOnHost> lay_out(std::span<const HostSlots> hosts, int ranks, MapBy by) {
    const int slots = std::accumulate(
        hosts.begin(), hosts.end(), 0, [](int sum, const auto& host) { return sum + host.slots; });
    if (ranks == 0) ranks = slots;
    check(ranks <= slots, [&] {
        return Error("E607",
                     fmt::format("{} ranks for {} slots on {} host(s)", ranks, slots, hosts.size()),
                     "each rank takes a slot",
                     fmt::format("-np {}, or more slots: NAME:SLOTS", slots));
    });
    std::vector<RankOnHost> places;
    std::vector<int> used(hosts.size());
    std::size_t host = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        host = next_free(hosts, used, host);
        places.push_back({rank, static_cast<int>(host), used[host]++});
        if (by == MapBy::node) host = (host + 1) % hosts.size();
    }
    return places;
}

Placement plan_job(std::span<const HostSlots> hosts,
                   std::span<const RankOnHost> ranks,
                   const NodeTopology* node,
                   const PlacementRules& rules) {
    if (node == nullptr) return names_only(hosts, ranks);
    Placement plan;
    for (int host = 0; host < std::ssize(hosts); ++host) {
        NodeTopology like = *node;
        like.host = hosts[static_cast<std::size_t>(host)].host;
        add(place_on_node(like, ranks_of(ranks, host, like.allowed_cpus), rules),
            like.host == node->host,
            plan);
    }
    std::ranges::sort(plan.seats, {}, &RankSeat::rank);
    return plan;
}

std::vector<std::string> differences(const Placement& plan, std::span<const RankSeat> reality) {
    std::vector<std::string> lines;
    if (plan.seats.size() != reality.size()) {
        lines.push_back(
            fmt::format("{} ranks are planned, {} are found", plan.seats.size(), reality.size()));
        return lines;
    }
    // Where nobody knew names: each host of the plan is one of reality, and the other way round.
    std::map<std::string, std::string> found_of, planned_of;
    for (std::size_t i = 0; i < reality.size(); ++i) {
        const auto& planned = plan.seats[i];
        const auto& found = reality[i];
        if (plan.names_hosts)
            compare(planned.rank, "host", planned.host, found.host, lines);
        else if (found_of.emplace(planned.host, found.host_id).first->second != found.host_id ||
                 planned_of.emplace(found.host_id, planned.host).first->second != planned.host)
            lines.push_back(fmt::format(
                "rank {}: it is on {} with others than planned", planned.rank, found.host));
        compare(planned.rank, "local rank", planned.local_rank, found.local_rank, lines);
        compare_cores(planned, found, lines);
        if (!planned.cpus.empty()) compare_gpus(planned, found, lines);
    }
    return lines;
}

void check_against_plan(const Placement& plan, std::span<const RankSeat> reality) {
    const auto lines = differences(plan, reality);
    check(lines.empty(), [&] {
        const auto shown = std::span(lines).first(std::min(lines.size(), most_shown));
        const auto more = lines.size() - shown.size();
        return Error("E644",
                     fmt::format("the job does not run as planned: {}{}",
                                 fmt::join(shown, "; "),
                                 more == 0 ? "" : fmt::format("; and {} more", more)),
                     "another launch line, other nodes, or another allocation than planned",
                     "start it with the line of 'lockstep map --format mpirun' or '--format srun', "
                     "or make a new plan");
    });
}

}  // namespace lockstep
