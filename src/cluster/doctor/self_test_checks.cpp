// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double least_memory_share = 0.2;  // of the speed that memory allows
constexpr double straggler_factor = 1.2;    // of the median rank
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

Ailments slow_links(JobRanks ranks) {
    if (!ranks.front().self_test) return {};
    Ailments found;
    for (const auto& [pair, speed] : slow_to_both(ranks))
        found.push_back({.what = fmt::format("between ranks {} and {}: {}, the median is {}",
                                             pair.first,
                                             pair.second,
                                             speed_text(speed),
                                             speed_text(ranks.front().self_test->median_link)),
                         .ranks = {pair.first, pair.second}});
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

Ailments stragglers(JobRanks ranks) {
    std::vector<double> typical;
    for (const DoctorFacts& facts : ranks)
        if (facts.self_test && facts.self_test->step_s.size() >= least_steps)
            typical.push_back(median(facts.self_test->step_s));
    const double middle = median(typical);
    Ailments found;
    for (const DoctorFacts& facts : ranks) {
        if (!facts.self_test || facts.self_test->step_s.size() < least_steps) continue;
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
                Severity::error,
                "an all-reduce gives wrong sums",
                "Whole numbers are summed whose sum is exact: a broken path, memory, or library.",
                "leave the node out (--write-exclude), and report it",
                wrong_sums,
                Pace::slow},
    DoctorCheck{"T2",
                Severity::warning,
                "a link is slow",
                "All ranks wait for the slowest link.",
                "use other nodes (sbatch --exclude), and tell the system's staff",
                slow_links,
                Pace::slow},
    DoctorCheck{
        "T3",
        Severity::warning,
        "sums are much slower than memory",
        "Ranks that wait for each other lose time where other processes take their cores, or "
        "cores are shared (C2) or under quotas (C6).",
        "mend the findings above first; 'lockstep bench comm' shows all sizes",
        below_memory,
        Pace::slow},
    DoctorCheck{"T4",
                Severity::error,
                "ranks compute different bits",
                "The same computation must give the same bits on every rank: processors differ, or "
                "one is broken.",
                "ask for nodes of one kind (sbatch --constraint), or leave the odd one out",
                different_state,
                Pace::slow},
    DoctorCheck{"T5",
                Severity::warning,
                "a rank is slower than the others",
                "All ranks wait for it in every step.",
                "look for other processes on its cores (C2), heat and clock (C7), or leave its "
                "node out",
                stragglers,
                Pace::slow},
};

}  // namespace

std::span<const DoctorCheck> self_test_checks() {
    return self_test_table;
}

}  // namespace lockstep
