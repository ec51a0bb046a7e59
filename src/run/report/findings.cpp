// SPDX-License-Identifier: Apache-2.0
// Rules about the run's time, about learning, about data and about the time of steps. Each has its
// limit beside it. docs/report.md lists them all.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The evidence for the rules: a run, and its report without the findings.
struct Evidence {
    const RunFigures& run;
    const Report& report;

    const RunStatus& status() const { return report.clues.status; }
    const RunTimes& times() const { return report.clues.status.times; }
    std::string folder() const { return shell_word(report.run()); }  ///< as a word of a command

    double seconds(Phase phase) const { return report.mean.phases[phase]; }  ///< of a mean step

    /// Returns the share of a mean step, 0 to 1.
    double share(Phase phase) const {
        const double wall_s = report.mean.wall_s();
        return wall_s > 0 ? seconds(phase) / wall_s : 0;
    }

    /// Returns the share of the time since the first start.
    double share(double spent) const { return times().elapsed > 0 ? spent / times().elapsed : 0; }

    /// Returns the command that made the run with changed settings; "" if it is unknown.
    std::string train(const ChangedSettings& changed) const {
        // A complete run has no steps left, if it is resumed.
        if (status().condition == RunCondition::complete) return train_anew(changed);
        return report.clues.train_line ? report.clues.train_line(changed) : "";
    }

    /// Returns the same command for a new run, for settings that decide bits.
    std::string train_anew(ChangedSettings changed) const {
        changed.emplace_back("run", report.run() + "-" + changed.front().first);
        return report.clues.train_line ? report.clues.train_line(changed) : "";
    }
};

using Found = std::optional<ReportFinding>;

ReportFinding warning(std::string_view kind,
                      std::string title,
                      std::string advice,
                      std::string command) {
    return {.kind = kind,
            .weight = FindingWeight::warning,
            .title = std::move(title),
            .advice = std::move(advice),
            .command = std::move(command)};
}

/// Returns "23 %" for 0.23.
std::string share_text(double share) {
    return share_of(share, 1);
}

constexpr double much_saving = 0.035, much_evaluating = 0.10, much_repeated = 0.02, worth_s = 1;
constexpr double much_starting = 0.10, slow_start_s = 30, much_worse = 1.1;
constexpr std::size_t many_starts = 3;

/// Returns the time for which one save stops rank 0, by the steps it kept; 0: unknown.
double save_cost_s(const RunFigures& run) {
    if (run.ranks.empty()) return 0;
    double most = 0, sum = 0, saves = 0;
    for (const StepBudget& step : run.ranks.front().steps)
        most = std::max(most, step.phases[Phase::checkpoint]);
    for (const StepBudget& step : run.ranks.front().steps)
        if (step.phases[Phase::checkpoint] > 0.1 * most) {
            sum += step.phases[Phase::checkpoint];
            ++saves;
        }
    return saves > 0 ? sum / saves : 0;
}

std::string every_seconds(double seconds) {
    return fmt::format("{:.0f}s", std::clamp(std::ceil(seconds), 1.0, 86400.0));
}

Found find_saving(const Evidence& seen) {
    const double share = seen.share(seen.times().saving);
    if (share < much_saving || seen.times().saving < worth_s) return {};
    const double cost_s = save_cost_s(seen.run);
    return warning(
        "saving",
        fmt::format("saving took {} of the time ({})",
                    share_text(share),
                    duration_text(seen.times().saving)),
        "save less often, or to a faster file system",
        cost_s > 0 ? seen.train({{"checkpoint-every", every_seconds(cost_s / much_saving)}}) : "");
}

Found find_evaluating(const Evidence& seen) {
    const double share = seen.share(seen.times().evaluating);
    if (share < much_evaluating || seen.times().evaluating < worth_s) return {};
    const auto& all = seen.run.evaluations;
    const double apart = all.size() < 2 ? 0
                                        : static_cast<double>(all.back().step - all.front().step) /
                                              static_cast<double>(all.size() - 1);
    const double rarer = std::ceil(2 * share / much_evaluating);
    return warning("evaluating",
                   fmt::format("evaluating took {} of the time ({} for {} evaluations)",
                               share_text(share),
                               duration_text(seen.times().evaluating),
                               all.size()),
                   "evaluate less often",
                   apart >= 1
                       ? seen.train({{"evaluate-every", fmt::format("{:.0f}steps", apart * rarer)}})
                       : "");
}

Found find_slow_start(const Evidence& seen) {
    const double share = seen.share(seen.times().starting);
    if (share < much_starting || seen.times().starting < slow_start_s) return {};
    return warning(
        "slow_start",
        fmt::format("{} start(s) took {} before their first step, {} of the time",
                    seen.status().starts.size(),
                    duration_text(seen.times().starting),
                    share_text(share)),
        "the times in the log before the first step say what took long: reading the index, loading "
        "resident data, loading a checkpoint, or LibTorch from a slow file system",
        fmt::format("lockstep logs {} --rank 0", seen.folder()));
}

Found find_repeated_steps(const Evidence& seen) {
    const double share = seen.share(seen.times().repeated);
    if (share < much_repeated || seen.times().repeated < worth_s) return {};
    // Young's interval, for the mean time between the ends of starts that were seen.
    const double ends = std::max<double>(static_cast<double>(seen.status().starts.size()) - 1, 1);
    const double every_s = std::sqrt(2 * save_cost_s(seen.run) * seen.times().elapsed / ends);
    return warning("repeated_steps",
                   fmt::format("{} of the time went into steps that were done again or lost ({})",
                               share_text(share),
                               duration_text(seen.times().repeated)),
                   "save more often; the number is Young's, for the starts that ended so far",
                   every_s > 0 ? seen.train({{"checkpoint-every", every_seconds(every_s)}}) : "");
}

Found find_restarts(const Evidence& seen) {
    const std::size_t starts = seen.status().starts.size();
    if (starts < many_starts) return {};
    const double lost_s = seen.times().starting + seen.times().down + seen.times().repeated;
    return warning(
        "restarts",
        seen.times().elapsed > 0
            ? fmt::format(
                  "{} starts: {} between them, in starting and in steps done again, {} of the time",
                  starts,
                  duration_text(lost_s),
                  share_text(seen.share(lost_s)))
            : fmt::format("{} starts; how much time that took is not known", starts),
        "see why they ended; a longer time limit makes fewer starts",
        fmt::format("lockstep logs {} --all-starts --level warn", seen.folder()));
}

Found find_bad_loss(const Evidence& seen) {
    std::int64_t reports = 0, first = 0;
    for (const StepsEvent& event : seen.run.reports)
        if (!std::isfinite(event.report.loss) && reports++ == 0) first = event.report.step;
    if (reports == 0) return {};
    const auto rate = parse_real(setting_of(seen.run.record, "lr"));
    return ReportFinding{
        "loss_not_finite",
        FindingWeight::problem,
        fmt::format("the loss is not finite in {} of {} reports, first at step {}",
                    reports,
                    seen.run.reports.size(),
                    first),
        "a lower --lr, a longer --warmup-steps, --clip-norm 1, or --precision bf16 in "
        "place of fp16",
        rate ? seen.train_anew({{"lr", fmt::format("{:.3g}", *rate / 3)}}) : ""};
}

Found find_skipped_steps(const Evidence& seen) {
    std::int64_t most = 0;
    for (const StepsEvent& event : seen.run.reports)
        most = std::max(most, event.skipped_steps.value_or(0));
    if (most == 0) return {};
    const bool is_usual = setting_of(seen.run.record, "precision") == "fp16";
    return ReportFinding{
        "skipped_steps",
        is_usual ? FindingWeight::note : FindingWeight::warning,
        fmt::format("{} step(s) were skipped: loss or gradient was not finite", most),
        is_usual ? "with fp16 a few are usual, until the loss scale fits"
                 : "the model did not learn from them: a lower --lr or --clip-norm 1",
        fmt::format("lockstep logs {} --level warn", seen.folder())};
}

Found find_overfitting(const Evidence& seen) {
    for (const ReportChart& chart : seen.report.charts)
        for (const ReportCurve& curve : chart.curves) {
            if (chart.kind != ChartKind::loss || curve.source != CurveSource::evaluations) continue;
            if (curve.points.size() < 3) continue;
            if (curve.best_low <= 0 || curve.last < much_worse * curve.best_low) continue;
            return warning("overfitting",
                           fmt::format("the test loss was {} at step {} and is {} now: {} more",
                                       figure_text(curve.best_low),
                                       curve.low_step,
                                       figure_text(curve.last),
                                       share_text(curve.last / curve.best_low - 1)),
                           "the model overfits: keep the best checkpoint, and stop sooner",
                           seen.train_anew({{"keep-best", "loss"}, {"early-stop", "5"}}));
        }
    return {};
}

Found find_masked_samples(const Evidence& seen) {
    std::uint64_t masked = 0;
    for (const StepsEvent& event : seen.run.reports) masked += event.data.masked_samples;
    if (masked == 0) return {};
    return warning(
        "masked_samples",
        fmt::format("{} damaged sample(s) counted as nothing on rank 0", grouped(masked)),
        "the data are damaged: copy them again",
        "lockstep data verify " + shell_word(setting_of(seen.run.record, "data")));
}

Found find_read_retries(const Evidence& seen) {
    std::uint64_t retries = 0;
    for (const StepsEvent& event : seen.run.reports) retries += event.data.retries;
    if (retries == 0) return {};
    return ReportFinding{
        "read_retries",
        FindingWeight::note,
        fmt::format("{} read(s) of rank 0 failed and were done again", grouped(retries)),
        "the file server is busy or its network loses packets",
        "lockstep bench io --data " + shell_word(setting_of(seen.run.record, "data"))};
}

Found failure(const Evidence& seen) {
    const RunStatus& status = seen.status();
    if (const auto& cause = seen.report.clues.cause) {
        const std::string reason = cause->error.fix.empty() ? cause->error.why : cause->error.fix;
        return ReportFinding{"failure",
                             FindingWeight::problem,
                             cause_title(*cause) + ": " + plain_text(cause->error.what),
                             plain_text(reason),
                             seen.report.clues.next};
    }
    if (mood_of(status.condition) != ReportMood::bad) return {};
    return ReportFinding{
        "failure",
        FindingWeight::problem,
        fmt::format("the run is {}, and no rank says why", run_condition_name(status.condition)),
        status.reason.empty() ? "the launcher's output may say more" : plain_text(status.reason),
        seen.report.clues.next};
}

Found no_steps(const Evidence& seen) {
    for (const RankFigures& rank : seen.run.ranks)
        if (!rank.steps.empty() || !rank.damage.empty()) return {};
    return ReportFinding{"no_steps",
                         FindingWeight::note,
                         "no rank recorded its steps, so the time of a step is not known",
                         "no step was done yet, or an earlier version of Lockstep made the run",
                         fmt::format("lockstep status {}", seen.folder())};
}

Found damaged_steps(const Evidence& seen) {
    const auto damaged = std::ranges::find_if(
        seen.run.ranks, [](const RankFigures& rank) { return !rank.damage.empty(); });
    if (damaged == seen.run.ranks.end()) return {};
    return warning("damaged_steps",
                   fmt::format("the steps of rank {} are not known: {}",
                               damaged->facts.rank,
                               plain_text(damaged->damage)),
                   "its row is empty here; the rest is not affected",
                   fmt::format("lockstep logs {} --rank {}", seen.folder(), damaged->facts.rank));
}

ReportFinding all_well(const Evidence& seen) {
    const double computing =
        seen.share(Phase::forward) + seen.share(Phase::backward) + seen.share(Phase::update);
    return ReportFinding{
        "all_well",
        FindingWeight::note,
        computing > 0
            ? fmt::format("nothing stands out: {} of a step is forward, backward and update",
                          share_text(computing))
            : "nothing stands out",
        "",
        seen.report.clues.next};
}

constexpr double much_waiting = 0.05, much_data = 0.10, much_comm = 0.10, much_other = 0.10;
constexpr std::int64_t most_leaves = 1 << 20;  // more than any run has: run.json may be damaged
constexpr double slow_first_step_s = 5, slow_first_step_times = 10;

/// More leaves than others have are told of by find_uneven_leaves().
Found find_straggler(const Evidence& seen) {
    const auto& stragglers = seen.report.stragglers;
    if (stragglers.empty() || stragglers.front().cause == StragglerCause::more) return {};
    const Straggler& worst = stragglers.front();
    return warning("straggler",
                   plain_text(stragglers_text(stragglers)),
                   plain_text(advice(worst)),
                   fmt::format("lockstep logs {} --rank {}", seen.folder(), worst.rank));
}

/// V leaves on P ranks: some ranks have one more than others.
Found find_uneven_leaves(const Evidence& seen) {
    const auto leaves = seen.run.record.contract.value("virtual_ranks", std::int64_t{0});
    const auto ranks = std::ssize(seen.run.ranks);
    if (ranks < 2 || leaves < ranks || leaves > most_leaves || leaves % ranks == 0) return {};
    const std::int64_t most = leaves / ranks + 1;
    const bool lack_cores = std::ranges::any_of(seen.run.ranks, [](const RankFigures& rank) {
        return rank.place && rank.place->sharers > rank.place->cores;
    });
    std::int64_t better = ranks;
    while (leaves % better != 0) better += lack_cores ? -1 : 1;
    return warning(
        "uneven_leaves",
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
        seen.train({{"np", std::to_string(better)}}));
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
    return warning(
        "waiting",
        title + link_rate_clause(steps_of_ranks(seen.run)),
        "all ranks wait for the slowest: check whether something else runs on its cores or node, "
        "and how its log differs from the others",
        slowest == rows.end()
            ? ""
            : fmt::format("lockstep logs {} --rank {}", seen.folder(), slowest->first));
}

Found find_slow_data(const Evidence& seen) {
    const double share = seen.share(Phase::data);
    if (share < much_data) return {};
    const std::string bound = plain_text(what_bound(seen.run.reports));
    int threads = 1;
    for (const StepsEvent& event : seen.run.reports)
        threads = std::max(threads, event.data.io_threads);
    return warning(
        "data_bound",
        fmt::format("a step waits {} of its time for data ({}){}",
                    share_text(share),
                    step_length_text(seen.seconds(Phase::data)),
                    bound.empty() ? "" : "; what takes longest is " + bound),
        "more I/O threads; more --data-memory, so that all stays in memory; a copy on a local "
        "disk ('lockstep data stage'); 'lockstep bench io --data DIR' measures each part",
        seen.train({{"io-threads", std::to_string(2 * threads)}}));
}

Found find_communication(const Evidence& seen) {
    const double share = seen.share(Phase::comm);
    if (share < much_comm) return {};
    return warning(
        "communication",
        fmt::format("a step waits {} of its time for sums of gradients ({}){}",
                    share_text(share),
                    step_length_text(seen.seconds(Phase::comm)),
                    link_rate_clause(steps_of_ranks(seen.run))),
        "a larger --batch makes sums rarer (other bits: a new run); --comm-thread on hides them "
        "behind backward if ranks have a core for it; fewer ranks; 'bench comm' compares "
        "transports",
        bench_command(seen.run));
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
    if (usual_s <= 0 || longest_s < std::max(slow_first_step_s, slow_first_step_times * usual_s))
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

}  // namespace

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
