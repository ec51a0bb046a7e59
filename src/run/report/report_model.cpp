// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string member_text(const Json& object, std::string_view key) {
    return object.value(key, Json("")).as_text();
}

std::set<std::string> hosts_of(const RunFigures& run) {
    std::set<std::string> hosts;
    for (const RankFigures& rank : run.ranks)
        if (!rank.facts.host.empty()) hosts.insert(rank.facts.host);
    return hosts;
}

std::string ranks_fact(const RunFigures& run) {
    if (run.ranks.empty()) return "";
    const std::set<std::string> hosts = hosts_of(run);
    const std::string ranks = fmt::format("{}", run.ranks.size());
    if (hosts.empty()) return ranks;
    if (hosts.size() == 1) return ranks + " on " + *hosts.begin();
    return fmt::format(
        "{} on {} nodes: {} to {}", ranks, hosts.size(), *hosts.begin(), *hosts.rbegin());
}

/// "adam, rate 0.001"
std::string optimizer_fact(const RunRecord& record) {
    const std::string name = setting_of(record, "optimizer"), rate = setting_of(record, "lr");
    return name.empty() || rate.empty() ? name : name + ", rate " + rate;
}

std::string memory_fact(const RunFigures& run) {
    std::uint64_t most = 0;
    for (const StepsEvent& event : run.reports) most = std::max(most, event.report.memory_bytes);
    return most > 0 ? bytes_text(most) + " at most" : "";
}

std::vector<ReportFact> facts_of(const RunFigures& run) {
    const RunRecord& record = run.record;
    std::vector<ReportFact> facts{
        {"model", setting_of(record, "model")},
        {"task", setting_of(record, "task")},
        {"data", setting_of(record, "data")},
        {"test data", setting_of(record, "test-data")},
        {"ranks", ranks_fact(run)},
        {"virtual ranks (V)", member_text(record.contract, "virtual_ranks")},
        {"threads a rank", member_text(record.contract, "threads")},
        {"instructions", member_text(record.contract, "instruction_set")},
        {"batch", setting_of(record, "batch")},
        {"optimizer", optimizer_fact(record)},
        {"device", setting_of(record, "device")},
        {"precision", setting_of(record, "precision")},
        {"seed", member_text(record.contract, "seed")},
        {"memory of rank 0", memory_fact(run)},
        {"run id", record.run_id},
        {"made", record.created_by + ", " + record.created_at},
        {"Lockstep", member_text(record.versions, "lockstep")},
        {"LibTorch", member_text(record.versions, "libtorch")},
        {"MPI", member_text(record.versions, "mpi")}};
    for (ReportFact& fact : facts) fact.value = plain_text(fact.value);
    std::erase_if(facts, [](const ReportFact& fact) { return fact.value.empty(); });
    return facts;
}

/// "step 120 of 1,000 after 43.0s"
std::string place_text(const RunStatus& status) {
    std::string text = "step " + count_words(reached_step(status));
    if (status.steps_total > 0) text += " of " + count_words(status.steps_total);
    if (status.times.elapsed > 0) text += " after " + duration_text(status.times.elapsed);
    return text;
}

std::string condition_sentence(const RunStatus& status) {
    const double elapsed_s = status.times.elapsed;
    switch (status.condition) {
        case RunCondition::complete:
            return fmt::format("complete: {} steps{}",
                               count_words(reached_step(status)),
                               elapsed_s > 0 ? " in " + duration_text(elapsed_s) : "");
        case RunCondition::failed:
            return "failed at " + place_text(status);
        case RunCondition::lost:
            return "lost at " + place_text(status) + ", nobody is there any more";
        case RunCondition::stuck:
            return "stuck at " + place_text(status);
        case RunCondition::checkpointed:
            return "saved at " + place_text(status) + ", to be continued";
        case RunCondition::running:
            return "running, at " + place_text(status);
        case RunCondition::starting:
            return "starting";
    }
    return "";
}

/// "loss 0.4183, test accuracy 98.37"
std::string results_text(const std::vector<ReportChart>& charts) {
    std::string text;
    for (const ReportChart& chart : charts) {
        const bool is_loss = chart.kind == ChartKind::loss;
        if (!is_loss && chart.kind != ChartKind::figure) continue;
        for (const ReportCurve& curve : chart.curves)
            text += fmt::format("{}{}{} {}",
                                text.empty() ? "" : ", ",
                                is_loss ? curve.name + " " : "",
                                chart.title,
                                figure_text(curve.last));
    }
    return text;
}

std::string outcome_of(const Report& report) {
    const RunStatus& status = report.clues.status;
    std::string text = condition_sentence(status);
    const auto& cause = report.clues.cause;
    if (cause) {
        const bool is_newest = report.clues.start == status.incarnation;
        text += fmt::format(": {}{} ({})",
                            is_newest ? "" : fmt::format("start {}: ", report.clues.start),
                            cause_title(*cause),
                            plain_text(cause->error.what));
    } else if (status.condition == RunCondition::stuck && !status.trouble.empty()) {
        text += ": " + plain_text(status.trouble);
    } else if (mood_of(status.condition) != ReportMood::good && !status.reason.empty()) {
        text += ": " + plain_text(status.reason);
    }
    if (mood_of(status.condition) == ReportMood::bad) return text;
    const std::string results = results_text(report.charts);
    return results.empty() ? text : text + "; " + results;
}

std::vector<ReportRank> ranks_of(const RunFigures& run) {
    std::vector<ReportRank> ranks;
    for (const RankFigures& rank : run.ranks)
        ranks.push_back({rank.facts.rank,
                         plain_text(rank.facts.host),
                         mean_step(rank),
                         plain_text(rank.damage)});
    return ranks;
}

}  // namespace

std::string_view finding_weight_name(FindingWeight weight) {
    constexpr std::array<std::string_view, 3> names{"note", "warning", "problem"};
    return names.at(static_cast<std::size_t>(weight));
}

std::string setting_of(const RunRecord& record, std::string_view name) {
    if (const Json* const decided = record.deciding.find(name)) return decided->as_text();
    return member_text(record.config.value(name, Json()), "value");
}

Report make_report(const RunFigures& run, ReportClues clues) {
    const std::int64_t batch = parse_integer(setting_of(run.record, "batch")).value_or(0);
    Report report{.clues = std::move(clues),
                  .incarnation = run.incarnation,
                  .facts = facts_of(run),
                  .batch = std::max<std::int64_t>(batch, 0),
                  .charts = report_charts(run),
                  .mean = mean_step(run),
                  .ranks = ranks_of(run),
                  .heat = heat_map(run.ranks),
                  .stragglers = find_stragglers(run)};
    if (run.incarnation > 0)
        report.placement =
            read_placement(RunPaths{run.root}.logs(run.incarnation) / "rank-00000.log");
    report.outcome = outcome_of(report);
    report.findings = report_findings(run, report);
    return report;
}

}  // namespace lockstep
