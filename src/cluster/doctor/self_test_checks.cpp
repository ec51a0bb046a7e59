// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/numbers.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double least_link = 100e6;  // bytes a second; Gigabit Ethernet gives 112 to 118 million
constexpr double least_link_share = 0.5;    // share of the interface's speed
constexpr double least_memory_share = 0.2;  // share of the speed that memory allows
constexpr double straggler_factor = 1.2;    // multiple of the median rank
constexpr std::size_t least_steps = 20;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() / 2];
}

Ailments wrong_sums(const DoctorFacts& facts) {
    Ailments found;
    if (facts.self_test)
        for (const WrongSum& sum : facts.self_test->wrong_sums)
            if (sum.wrong > 0)
                found.push_back({fmt::format(
                    "{} of {} sums of {} are wrong", sum.wrong, grouped(sum.count), sum.type)});
    return found;
}

/// The better of what both ends saw of each link that is slow to both: one of them may have waited
/// for the other to come.
std::map<std::pair<int, int>, double> slow_to_both(JobRanks ranks) {
    std::map<std::pair<int, int>, double> seen, both;
    for (const DoctorFacts& facts : ranks) {
        if (!facts.self_test) continue;
        for (const PairSpeed& pair : facts.self_test->slow_pairs) {
            const std::pair<int, int> ends = std::minmax(int{facts.rank}, int{pair.to_rank});
            const auto [first, is_first] = seen.emplace(ends, pair.bytes_per_s);
            if (!is_first) both[ends] = std::max(first->second, pair.bytes_per_s);
        }
    }
    return both;
}

std::string speed_text(double bytes_per_s) {
    return bytes_text(static_cast<std::uint64_t>(bytes_per_s)) + "/s";
}

/// An interface, and what it says that it carries.
struct NamedSpeed {
    std::string interface;
    double bytes_per_s = 0;  ///< 0: it does not say
};

/// The node's fastest interface in `networks`. A pair of virtual ones says 10 Gbit/s of whatever is
/// behind it.
NamedSpeed interface_speed(const NodeTopology& node, const std::vector<std::string>& networks) {
    NamedSpeed fastest;
    for (const HostAddress& each : addresses_of(node).usable)
        for (const NetworkInterface& interface : node.interfaces) {
            const bool is_real = !interface.is_virtual || interface.kind == InterfaceKind::bond ||
                                 interface.kind == InterfaceKind::vlan;
            const double bytes_per_s = interface.speed_mbps * 1e6 / 8;
            if (interface.name == each.interface && is_real &&
                std::ranges::count(networks, each.network) > 0 && bytes_per_s > fastest.bytes_per_s)
                fastest = {interface.name, bytes_per_s};
        }
    return fastest;
}

/// The slower of the interfaces that join two nodes; nothing if one does not say its speed.
NamedSpeed speed_between(const NodeTopology& one, const NodeTopology& other) {
    const std::array<const NodeTopology*, 2> both{&one, &other};
    const auto networks = shared_networks(both);
    const NamedSpeed first = interface_speed(one, networks);
    const NamedSpeed second = interface_speed(other, networks);
    return first.bytes_per_s <= second.bytes_per_s ? first : second;
}

/// One stream of TCP seldom fills a faster interface: no more than half of `doubtful_link`'s
/// 10 Gbit/s is asked for.
bool is_slow(double bytes_per_s, const NamedSpeed& interface) {
    const double share = std::min(least_link_share * interface.bytes_per_s, doubtful_link);
    return bytes_per_s < std::max(least_link, share);
}

/// "2.3 MiB/s, although eth0 runs at 10 Gbit/s"
std::string slow_link_text(double bytes_per_s, const NamedSpeed& interface) {
    if (interface.bytes_per_s == 0)
        return speed_text(bytes_per_s) + ", less than Gigabit Ethernet gives";
    return fmt::format("{}, where {} runs at {:g} Gbit/s",
                       speed_text(bytes_per_s),
                       interface.interface,
                       8e-9 * interface.bytes_per_s);
}

/// Of links that are slow by themselves the slowest is reported, because all may be slow.
Ailments slow_in_themselves(JobRanks ranks, const std::map<std::pair<int, int>, double>& links) {
    Ailment worst;
    std::set<int> ends;
    double least = 0;
    int count = 0;
    for (const auto& [pair, speed] : links) {
        const auto between = speed_between(ranks[static_cast<std::size_t>(pair.first)].node,
                                           ranks[static_cast<std::size_t>(pair.second)].node);
        if (!is_slow(speed, between)) continue;
        ends.insert({pair.first, pair.second});
        if (count++ > 0 && speed >= least) continue;
        least = speed;
        worst.what = fmt::format(
            "between ranks {} and {}: {}", pair.first, pair.second, slow_link_text(speed, between));
    }
    if (count == 0) return {};
    if (count > 1) worst.what += fmt::format("; and {} more such link(s)", count - 1);
    worst.why = fmt::format("All ranks wait for the slowest link: 100 MiB of gradients take {}.",
                            duration_text((100 << 20) / least));
    worst.ranks.assign(ends.begin(), ends.end());
    return {worst};
}

Ailments slow_links(JobRanks ranks) {
    if (!ranks.front().self_test) return {};
    const double median = ranks.front().self_test->median_link;
    Ailments found;
    std::map<std::pair<int, int>, double> others;
    for (const auto& [pair, speed] : slow_to_both(ranks))
        if (speed < slow_link_share * median)
            found.push_back({.what = fmt::format("between ranks {} and {}: {}, the median is {}",
                                                 pair.first,
                                                 pair.second,
                                                 speed_text(speed),
                                                 speed_text(median)),
                             .ranks = {pair.first, pair.second}});
        else
            others.emplace(pair, speed);
    std::ranges::move(slow_in_themselves(ranks, others), std::back_inserter(found));
    return found;
}

Ailments below_memory(JobRanks ranks) {
    const auto& test = ranks.front().self_test;
    if (!test || !test->measured_s || !test->memory_s) return {};
    const double share = *test->memory_s / *test->measured_s;
    if (share >= least_memory_share) return {};
    return {{fmt::format(
        "a sum of {} over all ranks takes {:.1f} ms, memory alone would take {:.1f} ms: "
        "{:.0f} % of its speed",
        bytes_text(test->reduced_bytes),
        1e3 * *test->measured_s,
        1e3 * *test->memory_s,
        100 * share)}};
}

Ailments different_state(JobRanks ranks) {
    RanksByValue hashes;
    Ailments found;
    for (const DoctorFacts& facts : ranks) {
        if (!facts.self_test || facts.self_test->state_hash.empty()) continue;
        hashes[facts.self_test->state_hash].push_back(facts.rank);
        if (facts.self_test->not_finite > 0)
            found.push_back(
                {.what = fmt::format("{} number(s) are not finite", facts.self_test->not_finite),
                 .ranks = {facts.rank}});
    }
    if (hashes.size() > 1)
        found.push_back({fmt::format("the same computation gives {}", values_text(hashes))});
    return found;
}

/// Ranks that take turns on a core (C2) slow each other down by chance.
bool is_measured(const DoctorFacts& facts, const std::set<int>& crowded) {
    return facts.self_test && facts.self_test->step_s.size() >= least_steps &&
           !crowded.contains(facts.rank);
}

Ailments stragglers(JobRanks ranks) {
    std::set<int> crowded;
    for (const RanksOfNode& node : nodes_of(ranks)) {
        std::set<int> cpus;
        for (const auto* facts : node)
            cpus.insert(facts->node.allowed_cpus.begin(), facts->node.allowed_cpus.end());
        if (!cpus.empty() && cpus.size() < node.size())
            for (const auto* facts : node) crowded.insert(facts->rank);
    }
    std::vector<double> typical;
    for (const DoctorFacts& facts : ranks)
        if (is_measured(facts, crowded)) typical.push_back(median(facts.self_test->step_s));
    const double middle = median(typical);
    Ailments found;
    for (const DoctorFacts& facts : ranks) {
        if (!is_measured(facts, crowded)) continue;
        const double own = median(facts.self_test->step_s);
        if (own > straggler_factor * middle)
            found.push_back({.what = fmt::format("this rank takes {:.2f} times as long as the "
                                                 "median for the same work",
                                                 own / middle),
                             .ranks = {facts.rank}});
    }
    return found;
}

const std::array self_test_table{
    DoctorCheck{"T1",
                "an all-reduce gives wrong sums",
                "Whole numbers are summed whose sum is exact: a broken path, memory, or library.",
                "leave the node out (--write-exclude), and report it",
                wrong_sums,
                Severity::error,
                Pace::slow},
    DoctorCheck{"T2",
                "a link is slow",
                "All ranks wait for the slowest link.",
                "use other nodes (sbatch --exclude), and tell the system's staff",
                slow_links,
                Severity::warning,
                Pace::slow},
    DoctorCheck{"T3",
                "sums are much slower than memory",
                "Ranks that wait for each other lose time if other processes use their cores, or "
                "if cores are shared (C2) or under quotas (C6).",
                "fix the findings above first; 'lockstep bench comm' shows all sizes",
                below_memory,
                Severity::warning,
                Pace::slow},
    DoctorCheck{"T4",
                "ranks compute different bits",
                "The same computation must give the same bits on every rank: processors differ, or "
                "one is broken.",
                "ask for nodes of one kind (sbatch --constraint), or leave the odd one out",
                different_state,
                Severity::error,
                Pace::slow},
    DoctorCheck{"T5",
                "a rank is slower than the others",
                "All ranks wait for it in every step.",
                "look for a low clock and shared cores (C7) and for heat, or leave its node out",
                stragglers,
                Severity::warning,
                Pace::slow},
};

}  // namespace

std::span<const DoctorCheck> self_test_checks() {
    return self_test_table;
}

}  // namespace lockstep
