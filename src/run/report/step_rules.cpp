// SPDX-License-Identifier: Apache-2.0
// Rules about the time of steps. Each has its limit beside it.
#include "lockstep/run/log_text.hpp"

#include "report/evidence.hpp"
#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double much_waiting = 0.05, much_data = 0.10, much_comm = 0.10, much_other = 0.10;
constexpr std::int64_t most_leaves = 1 << 20;  // more than any run has: run.json may be damaged
constexpr double slow_first_step_s = 5, slow_first_step_times = 10;

std::string link_clause(const RunFigures& run) {
    std::vector<RankLinks> links;
    for (const RankFigures& rank : run.ranks)
        links.push_back({rank.facts.rank, rank.facts.host, rank.links});
    return link_rate_clause(links);
}

}  // namespace

/// More leaves than others have are told of by find_uneven_leaves().
Found find_straggler(const Evidence& seen) {
    const auto& stragglers = seen.report.stragglers;
    if (stragglers.empty() || stragglers.front().cause == StragglerCause::more) return {};
    const Straggler& worst = stragglers.front();
    return ReportFinding{"straggler",
                         FindingWeight::warning,
                         plain_text(stragglers_text(stragglers)),
                         plain_text(advice(worst)),
                         fmt::format("lockstep logs {} --rank {}", seen.folder(), worst.rank)};
}

/// V leaves on P ranks: some ranks have one more than others.
Found find_uneven_leaves(const Evidence& seen) {
    const auto leaves = seen.run.record.contract.value("virtual_ranks", std::int64_t{0});
    const auto ranks = std::ssize(seen.run.ranks);
    if (ranks < 2 || leaves < ranks || leaves > most_leaves || leaves % ranks == 0) return {};
    const std::int64_t most = leaves / ranks + 1;
    std::int64_t better = ranks;
    while (leaves % better != 0) ++better;
    return ReportFinding{
        "uneven_leaves",
        FindingWeight::warning,
        fmt::format(
            "V = {} leaves on {} ranks: {} of them compute {}, the others {}; at most {} of "
            "the ranks' time is of use",
            leaves,
            ranks,
            leaves % ranks,
            most,
            most - 1,
            share_text(static_cast<double>(leaves) / static_cast<double>(most * ranks))),
        "a number of ranks that divides V has the same bits and wastes nothing",
        seen.train({{"np", std::to_string(better)}})};
}

Found find_waiting(const Evidence& seen) {
    const double share = seen.share(Phase::wait);
    if (share < much_waiting || !seen.report.stragglers.empty()) return {};
    const auto& rows = seen.report.heat.rows;
    const auto slowest = std::ranges::max_element(
        rows, {}, [](const HeatRow& row) { return std::isfinite(row.mean) ? row.mean : 0; });
    std::string title = fmt::format("ranks wait {} of a step for each other ({})",
                                    share_text(share),
                                    step_length_text(seen.seconds(Phase::wait)));
    if (slowest != rows.end() && slowest->mean > 1)
        title += fmt::format("; slowest is rank {}, {:.2f} times the median",
                             ranks_label(slowest->first, slowest->last),
                             slowest->mean);
    return ReportFinding{
        "waiting",
        FindingWeight::warning,
        title + link_clause(seen.run),
        "all ranks wait for the slowest: check whether something else runs on its cores or node, "
        "and how its log differs from the others",
        slowest == rows.end()
            ? ""
            : fmt::format("lockstep logs {} --rank {}", seen.folder(), slowest->first)};
}

Found find_slow_data(const Evidence& seen) {
    const double share = seen.share(Phase::data);
    if (share < much_data) return {};
    const std::string bound = plain_text(what_bound(seen.run.reports));
    int threads = 1;
    for (const StepsEvent& event : seen.run.reports)
        threads = std::max(threads, event.data.io_threads);
    return ReportFinding{
        "data_bound",
        FindingWeight::warning,
        fmt::format("a step waits {} of its time for data ({}){}",
                    share_text(share),
                    step_length_text(seen.seconds(Phase::data)),
                    bound.empty() ? "" : "; what takes longest is " + bound),
        "more I/O threads; more --data-memory, so that all stays in memory; a copy on a local "
        "disk ('lockstep data stage'); 'lockstep bench io --data DIR' measures each part",
        seen.train({{"io-threads", std::to_string(2 * threads)}})};
}

Found find_communication(const Evidence& seen) {
    const double share = seen.share(Phase::comm);
    if (share < much_comm) return {};
    return ReportFinding{
        "communication",
        FindingWeight::warning,
        fmt::format("a step waits {} of its time for sums of gradients ({}){}",
                    share_text(share),
                    step_length_text(seen.seconds(Phase::comm)),
                    link_clause(seen.run)),
        "a larger --batch makes sums rarer (other bits: a new run); --comm-thread on hides them "
        "behind backward if ranks have a core for it; fewer ranks; 'bench comm' compares "
        "transports",
        fmt::format("lockstep bench comm --np {}",
                    std::max<std::size_t>(seen.run.ranks.size(), 2))};
}

Found find_other_time(const Evidence& seen) {
    const double share = seen.share(Phase::other);
    if (share < much_other) return {};
    return ReportFinding{
        "other_time",
        FindingWeight::note,
        fmt::format("{} of a step is in no phase of training ({})",
                    share_text(share),
                    step_length_text(seen.seconds(Phase::other))),
        "reports are made here: --log-every with a larger number, or 0 for one every 30 s",
        seen.train({{"log-every", "0"}})};
}

Found find_first_step(const Evidence& seen) {
    double longest_s = 0;
    for (const RankFigures& rank : seen.run.ranks)
        if (!rank.steps.empty()) longest_s = std::max(longest_s, rank.steps.front().wall_s());
    const double usual_s = seen.report.mean.wall_s();
    if (longest_s < slow_first_step_s || longest_s < slow_first_step_times * usual_s ||
        usual_s <= 0)
        return {};
    return ReportFinding{
        "first_step",
        FindingWeight::note,
        fmt::format("the first kept step took {}, {:.0f} times the mean",
                    step_length_text(longest_s),
                    longest_s / usual_s),
        "caches, memory and kernels warm up in it: it counts once a start, and rates leave it out",
        fmt::format("lockstep logs {} --rank 0", seen.folder())};
}

}  // namespace lockstep
