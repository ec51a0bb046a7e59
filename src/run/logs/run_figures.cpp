// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_figures.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "logs/rank_log.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

EvaluationMetrics evaluation_in(const Json& line) {
    EvaluationMetrics metrics{line.at("step").get<std::int64_t>(), 0, {}};
    if (const Json* epoch = line.find("epoch")) metrics.epoch = epoch->get<std::int64_t>();
    for (const auto& [key, value] : line.items())
        if (key.starts_with("test_") && value.is_number())
            metrics.figures[key] = value.get<double>();
    return metrics;
}

/// A line that is damaged, or half written, is passed over.
void add_line(RunFigures& run, std::string_view text) {
    const Json line = try_parse_json(text).value_or(Json());
    if (!line.contains("step")) return;
    try {
        if (line.contains("samples_per_s"))
            run.reports.push_back(record_from_json<StepsEvent>(line, "metrics"));
        else
            run.evaluations.push_back(evaluation_in(line));
    } catch (const Error&) {
    }
}

template <class T>
void keep_newest(std::vector<T>& all) {
    constexpr std::size_t most = 100'000;
    if (all.size() >= 2 * most) all.erase(all.begin(), all.end() - most);
}

/// The newest that fit into memory whatever the file is; a report has some 700 bytes.
void read_metrics(RunFigures& run) {
    constexpr std::int64_t most_bytes = 64 << 20;
    const fs::path path = RunPaths{run.root}.metrics();
    LogLines lines(path);
    if (lines.size() > most_bytes)
        once(Level::warn,
             "'{}' has {}: only its newest {} are read",
             path.string(),
             bytes_text(static_cast<std::uint64_t>(lines.size())),
             bytes_text(most_bytes));
    lines.choose_last(most_bytes);
    while (const auto line = lines.next()) {
        add_line(run, *line);
        keep_newest(run.reports);
        keep_newest(run.evaluations);
    }
}

// Among the first records of a rank's log.
std::optional<PlaceEvent> place_in(const fs::path& log) {
    constexpr int most_records = 32;
    LogLines lines(log);
    lines.choose(0, 1 << 20);
    for (int i = 0; i < most_records; ++i) {
        const auto line = lines.next();
        if (!line) break;
        const auto entry = log_entry_in(*line);
        if (const auto* const place = entry ? std::get_if<PlaceEvent>(&entry->event) : nullptr)
            return *place;
    }
    return {};
}

/// A few, near the end of a rank's log; oldest first. Others are not parsed: with many nodes they
/// are long.
std::vector<StepsEvent> newest_reports(const fs::path& log) {
    constexpr std::int64_t end_bytes = 64 << 10;
    constexpr std::size_t most_reports = 4;
    std::vector<StepsEvent> reports;
    LogLines lines(log);
    lines.choose_last(end_bytes);
    std::deque<std::string> newest;
    while (const auto line = lines.next()) {
        if (!line->ends_with('}') || line->find("\"so_far\"") == line->npos) continue;
        newest.emplace_back(*line);
        if (newest.size() > most_reports) newest.pop_front();
    }
    for (const std::string& report : newest)
        if (auto entry = log_entry_in(report))
            if (auto* const event = std::get_if<StepsEvent>(&entry->event))
                reports.push_back(std::move(*event));
    return reports;
}

/// Damage of one rank's file does not affect the others.
RankFigures read_rank(const fs::path& logs, const RankLogFacts& facts) {
    RankFigures rank{.facts = facts};
    const fs::path log = logs / fmt::format("rank-{:05}.jsonl", facts.rank);
    rank.place = place_in(log);
    const std::vector<StepsEvent> reports = newest_reports(log);
    rank.data_bound = what_bound(reports);
    for (const StepsEvent& report : reports)
        if (report.so_far) rank.links = report.so_far->links;
    try {
        rank.steps = read_step_budgets(step_budgets_path(logs, facts.rank));
    } catch (const Error& error) {
        rank.damage = error.what();
    }
    return rank;
}

void read_ranks(RunFigures& run, std::int64_t incarnation) {
    const fs::path logs = RunPaths{run.root}.logs(incarnation);
    if (!fs::is_directory(logs)) return;
    run.incarnation = incarnation;
    run.ranks.clear();
    for (const RankLogFacts& facts : read_log_facts(logs))
        run.ranks.push_back(read_rank(logs, facts));
}

bool has_steps(const RunFigures& run) {
    return std::ranges::any_of(run.ranks,
                               [](const RankFigures& rank) { return !rank.steps.empty(); });
}

}  // namespace

RunFigures read_rank_figures(const fs::path& root, std::int64_t incarnation) {
    RunFigures run{.root = root, .record = read_run_record(root)};
    const std::int64_t newest = read_incarnation(root);
    for (std::int64_t i = incarnation > 0 ? incarnation : newest; i >= 1; --i) {
        read_ranks(run, i);
        if (has_steps(run) || incarnation > 0) break;
    }
    if (incarnation == 0 && !has_steps(run) && newest > 0) read_ranks(run, newest);
    return run;
}

RunFigures read_run_figures(const fs::path& root, std::int64_t incarnation) {
    RunFigures run = read_rank_figures(root, incarnation);
    read_metrics(run);
    return run;
}

std::string what_bound(std::span<const StepsEvent> reports) {
    std::map<std::string, double> waited;
    constexpr double unnoticed = 0.01;  // share of the time, as in binding_stage()
    for (const StepsEvent& event : reports)
        if (!event.data.bound.empty() && event.data.wait_s > unnoticed * event.wall_s)
            waited[event.data.bound] += event.data.wait_s;
    const auto most =
        std::ranges::max_element(waited, {}, [](const auto& bound) { return bound.second; });
    return most == waited.end() || most->second <= 0 ? "" : most->first;
}

MeanStep mean_step(const RankFigures& rank) {
    MeanStep mean;
    for (const StepBudget& step : rank.steps) {
        if (&step == &rank.steps.front() && rank.steps.size() > 1) continue;
        ++mean.steps;
        mean.phases += step.phases;
    }
    for (double& seconds : mean.phases)
        seconds /= std::max<double>(1, static_cast<double>(mean.steps));
    return mean;
}

MeanStep mean_step(const RunFigures& run) {
    MeanStep mean;
    double ranks = 0;
    for (const RankFigures& rank : run.ranks) {
        const MeanStep own = mean_step(rank);
        if (own.steps == 0) continue;
        ++ranks;
        mean.steps = std::max(mean.steps, own.steps);
        mean.phases += own.phases;
    }
    for (double& seconds : mean.phases) seconds /= std::max(1.0, ranks);
    return mean;
}

}  // namespace lockstep
