// SPDX-License-Identifier: Apache-2.0
// Rules about the time since the first start. Each has its limit beside it.
#include "lockstep/core/clock.hpp"

#include "report/evidence.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double much_saving = 0.035, much_evaluating = 0.10, much_repeated = 0.02, worth_s = 1;
constexpr double much_starting = 0.10, slow_start_s = 30;
constexpr std::size_t many_starts = 3;

/// Returns the time for which one save stops rank 0, by the steps it kept; 0: unknown.
double save_cost_s(const RunFigures& run) {
    if (run.ranks.empty()) return 0;
    double most = 0, sum = 0, saves = 0;
    for (const StepBudget& step : run.ranks.front().steps)
        most = std::max(most, step.at(Phase::checkpoint));
    for (const StepBudget& step : run.ranks.front().steps)
        if (step.at(Phase::checkpoint) > 0.1 * most) {
            sum += step.at(Phase::checkpoint);
            ++saves;
        }
    return saves > 0 ? sum / saves : 0;
}

std::string every_seconds(double seconds) {
    return fmt::format("{:.0f}s", std::clamp(std::ceil(seconds), 1.0, 86400.0));
}

/// Young's interval between saves, for the mean time between the ends of starts that were seen.
double young_s(const Evidence& seen) {
    const double ends = std::max<double>(static_cast<double>(seen.status().starts.size()) - 1, 1);
    return std::sqrt(2 * save_cost_s(seen.run) * seen.times().elapsed / ends);
}

}  // namespace

Found find_saving(const Evidence& seen) {
    const double share = seen.share(seen.times().saving);
    if (share < much_saving || seen.times().saving < worth_s) return {};
    const double cost_s = save_cost_s(seen.run);
    return ReportFinding{
        FindingKind::saving,
        FindingWeight::warning,
        fmt::format("saving took {} of the time ({})",
                    share_text(share),
                    duration_text(seen.times().saving)),
        "save less often, or to a faster file system",
        cost_s > 0 ? seen.train({{"checkpoint-every", every_seconds(cost_s / much_saving)}}) : ""};
}

Found find_evaluating(const Evidence& seen) {
    const double share = seen.share(seen.times().evaluating);
    if (share < much_evaluating || seen.times().evaluating < worth_s) return {};
    const auto& all = seen.run.evaluations;
    const double apart = all.size() < 2 ? 0
                                        : static_cast<double>(all.back().step - all.front().step) /
                                              static_cast<double>(all.size() - 1);
    const double rarer = std::ceil(2 * share / much_evaluating);
    return ReportFinding{
        FindingKind::evaluating,
        FindingWeight::warning,
        fmt::format("evaluating took {} of the time ({} for {} evaluations)",
                    share_text(share),
                    duration_text(seen.times().evaluating),
                    all.size()),
        "evaluate less often",
        apart >= 1 ? seen.train({{"evaluate-every", fmt::format("{:.0f}steps", apart * rarer)}})
                   : ""};
}

Found find_slow_start(const Evidence& seen) {
    const double share = seen.share(seen.times().starting);
    if (share < much_starting || seen.times().starting < slow_start_s) return {};
    return ReportFinding{
        FindingKind::slow_start,
        FindingWeight::warning,
        fmt::format("{} start(s) took {} before their first step, {} of the time",
                    seen.status().starts.size(),
                    duration_text(seen.times().starting),
                    share_text(share)),
        "the times in the log before the first step say what took long: reading the index, loading "
        "resident data, loading a checkpoint, or LibTorch from a slow file system",
        fmt::format("lockstep logs {} --rank 0", seen.folder())};
}

Found find_repeated_steps(const Evidence& seen) {
    const double share = seen.share(seen.times().repeated);
    if (share < much_repeated || seen.times().repeated < worth_s) return {};
    const double every_s = young_s(seen);
    return ReportFinding{
        FindingKind::repeated_steps,
        FindingWeight::warning,
        fmt::format("{} of the time went into steps that were done again or lost ({})",
                    share_text(share),
                    duration_text(seen.times().repeated)),
        "save more often; the number is Young's, for the starts that ended so far",
        every_s > 0 ? seen.train({{"checkpoint-every", every_seconds(every_s)}}) : ""};
}

Found find_restarts(const Evidence& seen) {
    const std::size_t starts = seen.status().starts.size();
    if (starts < many_starts) return {};
    const double lost_s = seen.times().starting + seen.times().down + seen.times().repeated;
    return ReportFinding{
        FindingKind::restarts,
        FindingWeight::warning,
        fmt::format(
            "{} starts: {} between them, in starting and in steps done again, {} of the time",
            starts,
            duration_text(lost_s),
            share_text(seen.share(lost_s))),
        "see why they ended; a longer time limit makes fewer starts",
        fmt::format("lockstep logs {} --all-starts --level warn", seen.folder())};
}

}  // namespace lockstep
