// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/log_text.hpp"

#include "report/evidence.hpp"
#include "report/report_words.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

Found failure(const Evidence& seen) {
    const RunStatus& status = seen.status();
    if (const auto& cause = seen.report.clues.cause) {
        const std::string reason = cause->error.fix.empty() ? cause->error.why : cause->error.fix;
        return ReportFinding{FindingKind::failure,
                             FindingWeight::problem,
                             cause_title(*cause) + ": " + plain_text(cause->error.what),
                             plain_text(reason),
                             seen.report.clues.next};
    }
    if (mood_of(status.condition) != ReportMood::bad) return {};
    return ReportFinding{
        FindingKind::failure,
        FindingWeight::problem,
        fmt::format("the run is {}, and no rank says why", run_condition_name(status.condition)),
        status.reason.empty() ? "the launcher's output may say more" : plain_text(status.reason),
        seen.report.clues.next};
}

Found no_steps(const Evidence& seen) {
    const bool has_any = std::ranges::any_of(seen.run.ranks, [](const RankFigures& rank) {
        return !rank.steps.empty() || !rank.damage.empty();
    });
    if (has_any) return {};
    return ReportFinding{FindingKind::no_steps,
                         FindingWeight::note,
                         "no rank recorded its steps, so the time of a step is not known",
                         "no step was done yet, or an earlier version of Lockstep made the run",
                         fmt::format("lockstep status {}", seen.folder())};
}

Found damaged_steps(const Evidence& seen) {
    const auto damaged = std::ranges::find_if(
        seen.run.ranks, [](const RankFigures& rank) { return !rank.damage.empty(); });
    if (damaged == seen.run.ranks.end()) return {};
    return ReportFinding{
        FindingKind::damaged_steps,
        FindingWeight::warning,
        fmt::format("the steps of rank {} are not known: {}",
                    damaged->facts.rank,
                    plain_text(damaged->damage)),
        "its row is empty here; the rest is not affected",
        fmt::format("lockstep logs {} --rank {}", seen.folder(), damaged->facts.rank)};
}

ReportFinding all_well(const Evidence& seen) {
    const double computing =
        seen.share(Phase::forward) + seen.share(Phase::backward) + seen.share(Phase::update);
    return {FindingKind::all_well,
            FindingWeight::note,
            computing > 0
                ? fmt::format("nothing stands out: {} of a step is forward, backward and update",
                              share_text(computing))
                : "nothing stands out",
            "",
            seen.report.clues.next};
}

}  // namespace

double Evidence::seconds(Phase phase) const {
    return report.mean.phases[static_cast<std::size_t>(phase)];
}

double Evidence::share(Phase phase) const {
    const double wall_s = report.mean.wall_s();
    return wall_s > 0 ? seconds(phase) / wall_s : 0;
}

double Evidence::share(double seconds) const {
    return times().elapsed > 0 ? seconds / times().elapsed : 0;
}

std::string Evidence::folder() const {
    return shell_word(report.run());
}

std::string Evidence::train(const ChangedSettings& changed) const {
    return report.clues.train_line ? report.clues.train_line(changed) : "";
}

std::string Evidence::train_anew(ChangedSettings changed) const {
    changed.emplace_back("run", report.run() + "-" + changed.front().first);
    return train(changed);
}

std::string share_text(double share) {
    return share_of(share, 1);
}

std::vector<ReportFinding> report_findings(const RunFigures& run, const Report& report) {
    constexpr std::array rules{failure,          find_straggler,      find_uneven_leaves,
                               find_waiting,     find_slow_data,      find_communication,
                               find_other_time,  find_saving,         find_evaluating,
                               find_slow_start,  find_first_step,     find_repeated_steps,
                               find_restarts,    find_bad_loss,       find_skipped_steps,
                               find_overfitting, find_masked_samples, find_read_retries,
                               no_steps,         damaged_steps};
    const Evidence seen{run, report};
    std::vector<ReportFinding> findings;
    for (const auto rule : rules)
        if (Found found = rule(seen)) findings.push_back(*std::move(found));
    if (findings.empty()) findings.push_back(all_well(seen));
    std::ranges::stable_sort(findings, std::ranges::greater(), &ReportFinding::weight);
    return findings;
}

}  // namespace lockstep
