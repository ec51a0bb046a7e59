// SPDX-License-Identifier: Apache-2.0
// Makes the report, and the words and numbers that all its forms share.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string member_text(const Json& object, std::string_view key) {
    return object.value(key, Json("")).as_text();
}

std::string ranks_fact(const RunFigures& run) {
    if (run.ranks.empty()) return "";
    std::set<std::string> hosts;
    for (const RankFigures& rank : run.ranks)
        if (!rank.facts.host.empty()) hosts.insert(rank.facts.host);
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
    using enum RunCondition;
    const std::string place = place_text(status);
    const double elapsed_s = status.times.elapsed;
    if (status.condition == complete)
        return fmt::format("complete: {} steps{}",
                           count_words(reached_step(status)),
                           elapsed_s > 0 ? " in " + duration_text(elapsed_s) : "");
    if (status.condition == failed) return "failed at " + place;
    if (status.condition == lost) return "lost at " + place + ", nobody is there any more";
    if (status.condition == stuck) return "stuck at " + place;
    if (status.condition == checkpointed) return "saved at " + place + ", to be continued";
    return status.condition == running ? "running, at " + place : "starting";
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
                         rank.facts.rank,
                         plain_text(rank.facts.host),
                         mean_step(rank),
                         plain_text(rank.damage)});
    return ranks;
}

constexpr std::array<PartWord, static_cast<std::size_t>(Phase::count)> phase_words{{
    {'D', "data", "data"},
    {'F', "forward", "forward"},
    {'B', "backward", "backward"},
    {'C', "exposed communication", "comm"},
    {'W', "waiting for ranks", "wait"},
    {'U', "update", "update"},
    {'S', "saving", "save"},
    {'E', "evaluating", "evaluate"},
    {'O', "other", "other"},
    {'G', "copying to the GPU", "copy"},
}};

}  // namespace

std::string bench_command(const RunFigures& run) {
    std::map<std::string, int> ranks;
    for (const RankFigures& rank : run.ranks) ++ranks[rank.facts.host];
    if (ranks.size() < 2 || ranks.contains(""))
        return fmt::format("lockstep bench comm --np {}",
                           std::max<std::size_t>(run.ranks.size(), 2));
    std::vector<std::string> hosts;
    for (const auto& [host, count] : ranks) hosts.push_back(fmt::format("{}:{}", host, count));
    return fmt::format("mpirun --host {} lockstep bench comm",
                       shell_word(fmt::format("{}", fmt::join(hosts, ","))));
}

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

const PartWord& phase_word(Phase phase) {
    return phase_words.at(static_cast<std::size_t>(phase));
}

std::vector<Phase> shown_phases(const Report& report) {
    std::vector<Phase> shown;
    for (const Phase phase : phase_order)
        if (std::ranges::any_of(
                report.ranks, [&](const ReportRank& rank) { return rank.mean.phases[phase] > 0; }))
            shown.push_back(phase);
    return shown;
}

std::vector<TimePart> time_parts(const RunTimes& times) {
    std::vector<TimePart> parts{{{'T', "steps that count", "train"}, times.training},
                                {{'R', "steps done again or lost", "repeat"}, times.repeated},
                                {{'S', "saving", "save"}, times.saving},
                                {{'E', "evaluating", "evaluate"}, times.evaluating},
                                {{'I', "starting", "start"}, times.starting},
                                {{'-', "between starts", "down"}, times.down},
                                {{'O', "other", "other"}, times.other}};
    constexpr double shortest_s = 0.0005;
    std::erase_if(parts, [](const TimePart& part) { return part.seconds < shortest_s; });
    return parts;
}

std::string share_of(double part, double whole) {
    if (!(whole > 0)) return "-";
    const double percent = 100 * part / whole;
    return percent > 0 && percent < 9.95 ? fmt::format("{:.1f} %", percent)
                                         : fmt::format("{:.0f} %", percent);
}

std::string step_length_text(double seconds) {
    const bool in_ms = seconds < 0.9995;
    const double value = in_ms ? seconds * 1e3 : seconds;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, in_ms ? "ms" : "s");
}

std::string figure_text(double value) {
    const double size = std::abs(value);
    if (size >= 9999.5 && size < 1e15)
        return (value < 0 ? "-" : "") + grouped(static_cast<std::uint64_t>(std::llround(size)));
    return fmt::format("{:.4g}", value);
}

std::string count_words(std::int64_t count) {
    return grouped(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

std::string ranks_label(int first, int last) {
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::vector<ReportRank> rank_rows(std::span<const ReportRank> ranks, std::size_t most) {
    const std::size_t each = (ranks.size() + most - 1) / std::max<std::size_t>(most, 1);
    std::vector<ReportRank> rows;
    for (std::size_t i = 0; i < ranks.size(); i += each) {
        const auto part = ranks.subspan(i, std::min(each, ranks.size() - i));
        ReportRank row{
            .first = part.front().first, .last = part.back().last, .hosts = part.front().hosts};
        if (part.back().hosts != row.hosts) row.hosts += " ... " + part.back().hosts;
        double known = 0;
        for (const ReportRank& rank : part) {
            if (rank.mean.steps == 0) continue;
            ++known;
            row.mean.steps = std::max(row.mean.steps, rank.mean.steps);
            row.mean.phases += rank.mean.phases;
        }
        for (double& seconds : row.mean.phases) seconds /= std::max(known, 1.0);
        rows.push_back(std::move(row));
    }
    return rows;
}

std::vector<std::vector<std::string>> budget_rows(const Report& report, std::size_t most) {
    const std::vector<Phase> phases = shown_phases(report);
    std::vector<std::vector<std::string>> rows{{"ranks", "node", "a step"}};
    for (const Phase phase : phases) rows.front().emplace_back(phase_word(phase).name);
    for (const ReportRank& row : rank_rows(report.ranks, most)) {
        const double wall_s = row.mean.wall_s();
        auto& cells = rows.emplace_back();
        cells = {ranks_label(row.first, row.last), row.hosts, step_length_text(wall_s)};
        for (const Phase phase : phases) cells.push_back(share_of(row.mean.phases[phase], wall_s));
    }
    return rows;
}

std::vector<ReportFact> cause_facts(const RootCause& cause) {
    const RankError& error = cause.error;
    std::vector<ReportFact> facts{
        {"where", cause_title(cause)},
        {"what", plain_text(error.what)},
        {"why", plain_text(error.why)},
        {"fix", plain_text(error.fix)},
        {"when", error.time_s > 0 ? utc_text(error.time_s) : ""},
        {"consequence",
         cause.followers.empty() ? "" : ranks_text(cause.followers) + " ended for it"}};
    std::erase_if(facts, [](const ReportFact& fact) { return fact.value.empty(); });
    return facts;
}

std::int64_t reached_step(const RunStatus& status) {
    const std::int64_t reported = status.starts.empty() ? 0 : status.starts.back().to_step;
    return std::max(status.step, reported);
}

std::string start_steps(const StartRecord& start) {
    if (start.from_step < 0) return "no step";
    const std::string from = count_words(start.from_step);
    if (start.to_step < 0) return fmt::format("from step {}, without a report", from);
    return fmt::format("steps {} to {}", from, count_words(start.to_step));
}

std::string start_length(const StartRecord& start) {
    return duration_text(std::max(start.ended_unix_s - start.began_unix_s, 0.0));
}

ReportMood mood_of(RunCondition condition) {
    using enum RunCondition;
    if (condition == complete) return ReportMood::good;
    const bool is_bad = condition == failed || condition == lost || condition == stuck;
    return is_bad ? ReportMood::bad : ReportMood::open;
}

}  // namespace lockstep
