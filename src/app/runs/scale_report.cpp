// SPDX-License-Identifier: Apache-2.0
#include "runs/scale_report.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/text_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

using Cells = std::vector<std::string>;

const ScaleRow& row_of(const ScaleReport& report, int ranks) {
    return *std::ranges::find(
        report.rows, ranks, [](const ScaleRow& row) { return row.point.ranks; });
}

std::string short_of_text(const ScaleReport& report, double efficiency) {
    return fmt::format("{} efficient, less than {:.0f} %",
                       percent_text(efficiency),
                       100 * report.least_efficiency);
}

// Describes ranks beyond the advice: tried, or forecast.
std::string more_text(const ScaleReport& report) {
    const ScaleAdvice& advice = report.advice;
    if (advice.not_worth && advice.not_worth_is_slower)
        return fmt::format("{} are no faster", *advice.not_worth);
    if (advice.not_worth)
        return fmt::format("{} would be {}",
                           *advice.not_worth,
                           short_of_text(report, row_of(report, *advice.not_worth).efficiency));
    if (advice.worth_a_try)
        return fmt::format("by the forecast, {} are worth a try", *advice.worth_a_try);
    const auto found = std::ranges::find_if(report.forecasts, [&](const ScaleForecast& forecast) {
        return forecast.row.point.ranks > report.rows.back().point.ranks;
    });
    if (found == report.forecasts.end()) return "";
    const ScaleRow& next = found->row;
    if (next.efficiency < report.least_efficiency)
        return fmt::format("by the forecast, {} would be {}",
                           next.point.ranks,
                           short_of_text(report, next.efficiency));
    return fmt::format("by the forecast, {} would be no faster", next.point.ranks);
}

std::string verdict_text(const ScaleReport& report) {
    const ScaleRow& best = row_of(report, report.advice.ranks);
    const int fewest = report.rows.front().point.ranks;
    std::string text = best.point.ranks == 1
                           ? "stay with one rank"
                           : fmt::format("distribute over {}", ranks_count_text(best.point.ranks));
    if (best.point.ranks > fewest)
        text += fmt::format(": {:.2f} times as fast as {}, {} efficient",
                            best.speedup,
                            fewest,
                            percent_text(best.efficiency));
    const std::string more = more_text(report);
    return text + (more.empty() ? "" : "; " + more);
}

// Returns the hours of a training, or of what was timed.
double hours_paid(const ScaleReport& report, const ScalePoint& point) {
    const double paid =
        report.unit == ScaleUnit::core ? point.at_once() * report.threads : point.ranks;
    const double times = report.is_given ? 1 : report.steps_total;
    return paid * point.seconds * times / 3600;
}

std::string unit_name(ScaleUnit unit) {
    if (unit == ScaleUnit::core) return "core-hours";
    return unit == ScaleUnit::gpu ? "GPU-hours" : "rank-hours";
}

Cells heads(const ScaleReport& report) {
    return {"ranks",
            report.is_given ? "time" : "a step",
            "within",
            "ideal",
            "speed-up",
            "efficiency",
            report.is_given ? "" : "samples/s",
            "an epoch",
            report.steps_total > 0 ? grouped(std::llround(report.steps_total)) + " steps" : "",
            unit_name(report.unit),
            report.figure};
}

// The common cells of rows with measured and with forecast times.
Cells cells_of(const ScaleReport& report, const ScaleRow& row, const std::string& within) {
    const double seconds = row.point.seconds;
    const double hours = hours_paid(report, row.point);
    const auto run = report.runs.find(row.point.ranks);
    const ScaleRun facts = run == report.runs.end() ? ScaleRun() : run->second;
    return {
        fmt::format("{}", row.point.ranks),
        seconds_text(seconds),
        within,
        seconds_text(row.ideal_s),
        fmt::format("{:.2f}", row.speedup),
        percent_text(row.efficiency),
        !report.is_given && report.batch > 0 ? grouped(std::llround(report.batch / seconds)) : "",
        facts.epoch_steps ? duration_text(*facts.epoch_steps * seconds) : "",
        !report.is_given && report.steps_total > 0 ? duration_text(report.steps_total * seconds)
                                                   : "",
        hours > 0 ? fmt::format("{:.3g}", hours) : "",
        facts.accuracy ? fmt::format("{:.4g}", *facts.accuracy) : ""};
}

std::string table_text(const ScaleReport& report) {
    std::vector<Cells> rows{heads(report)};
    for (const ScaleRow& row : report.rows)
        rows.push_back(cells_of(
            report, row, row.point.error_s > 0 ? "+-" + seconds_text(2 * row.point.error_s) : ""));
    return text_table(rows, Align::right, Align::right);
}

// "81.1 % = 100 - 3.2 data - 9.1 exposed all-reduce + 0.4 update", to the tenth.
std::string waterfall_text(const ScaleRow& row) {
    const auto efficiency = std::llround(1000 * row.efficiency);
    const auto tenths =
        rounded_parts(*row.losses, static_cast<double>(1000 - efficiency) / 1000, 1000);
    std::string text = fmt::format("{:.1f} % = 100", static_cast<double>(efficiency) / 10);
    for (std::size_t i = 0; i < tenths.size(); ++i)
        if (tenths[i] != 0)
            text += fmt::format(" {} {:.1f} {}",
                                tenths[i] > 0 ? '-' : '+',
                                static_cast<double>(std::llabs(tenths[i])) / 10,
                                step_part_name(static_cast<StepPart>(i)));
    return text;
}

std::string losses_text(const ScaleReport& report) {
    if (report.rows.size() < 2 || !report.rows.back().losses) return "";
    std::string text = fmt::format("where the rest went, beside {}:\n",
                                   ranks_count_text(report.rows.front().point.ranks));
    for (const ScaleRow& row : report.rows)
        if (&row != &report.rows.front() && row.losses)
            text += fmt::format("  {:>5}  {}\n", row.point.ranks, waterfall_text(row));
    return text;
}

std::string model_text(const ScaleReport& report) {
    if (report.model.terms.empty()) return "";
    constexpr std::array laws{" / P", "", " log2 P", " (P-1)/P", " sqrt(2 ln P)"};
    std::vector<std::string> terms;
    for (std::size_t i = 0; i < laws.size(); ++i) {
        double seconds = 0;
        for (const FittedTerm& fitted : report.model.terms)
            if (fitted.term == static_cast<ScaleTerm>(i)) seconds += fitted.seconds;
        if (seconds > 0) terms.push_back(seconds_text(seconds) + laws[i]);
    }
    return fmt::format("model: {}, within {} of what was measured\n",
                       fmt::join(terms, " + "),
                       percent_text(report.model.misfit));
}

std::string room_text(const ScaleReport& report) {
    if (std::isinf(report.room))
        return report.unit == ScaleUnit::core ? ", each rank with cores of its own" : "";
    const double cores = report.room * report.threads;
    return fmt::format(", on {:.3g} core{} (--cores)", cores, cores == 1 ? "" : "s");
}

std::string forecast_text(const ScaleReport& report) {
    if (report.forecasts.empty()) return "";
    std::vector<Cells> rows{heads(report)};
    for (const ScaleForecast& forecast : report.forecasts)
        rows.push_back(cells_of(
            report,
            forecast.row,
            fmt::format(
                "{} to {}", seconds_text(forecast.least_s), seconds_text(forecast.most_s))));
    std::string text = fmt::format("forecast{}:\n", room_text(report)) +
                       text_table(rows, Align::right, Align::right);
    for (const ScaleForecast& forecast : report.forecasts)
        if (forecast.row.losses)
            text += fmt::format(
                "  {:>5}  {}\n", forecast.row.point.ranks, waterfall_text(forecast.row));
    return text;
}

constexpr std::pair<StepPart, const char*> remedies[] = {
    {StepPart::sharing, "ranks share cores: fewer ranks, or more machines ('lockstep map')"},
    {StepPart::computing,
     "ranks share caches and memory, other work shares the machine, or fewer samples a rank "
     "compute "
     "less well: fewer ranks a node, or a larger --batch, which changes what is learned"},
    {StepPart::data, "'lockstep bench io' says what the data can give; --data-mode, --io-threads"},
    {StepPart::reducing,
     "'lockstep bench comm' says what the network can give; a larger --batch hides more of it"},
    {StepPart::waiting,
     "'lockstep report RUN' shows which ranks are slow, 'lockstep map' what ranks share"},
    {StepPart::saving, "--checkpoint-every"}};

// Returns advice on the largest number of ranks, if a tenth or more is lost.
std::string next_text(const ScaleReport& report) {
    const ScaleRow& most = report.rows.back();
    const auto part = largest_loss(most);
    if (!part || 1 - most.efficiency < 0.1) return "";
    for (const auto& [of, remedy] : remedies)
        if (of == *part)
            return fmt::format("most is lost to {}: {}\n", step_part_name(*part), remedy);
    return "";
}

Json json_of(const ScaleRow& row, const ScaleReport& report) {
    Json json = {{"ranks", row.point.ranks},
                 {"seconds", row.point.seconds},
                 {"error_s", row.point.error_s},
                 {"at_once", row.point.at_once()},
                 {"ideal_s", row.ideal_s},
                 {"speedup", row.speedup},
                 {"efficiency", row.efficiency},
                 {"hours", hours_paid(report, row.point)}};
    if (row.losses) {
        Json losses = Json::object();
        for (std::size_t i = 0; i < row.losses->size(); ++i)
            losses[std::string(step_part_name(static_cast<StepPart>(i)))] = (*row.losses)[i];
        json["losses"] = losses;
    }
    const auto run = report.runs.find(row.point.ranks);
    if (run == report.runs.end()) return json;
    json["run"] = run->second.place;
    if (run->second.epoch_steps) json["epoch_steps"] = *run->second.epoch_steps;
    if (run->second.accuracy) json[report.figure] = *run->second.accuracy;
    return json;
}

Json json_of(const ScaleForecast& forecast, const ScaleReport& report) {
    Json json = json_of(forecast.row, report);
    json["least_s"] = forecast.least_s;
    json["most_s"] = forecast.most_s;
    json["least_efficiency"] = forecast.least_efficiency;
    json["most_efficiency"] = forecast.most_efficiency;
    return json;
}

Json json_of(const ScaleModel& model) {
    Json json = Json::array();
    for (const FittedTerm& term : model.terms)
        if (term.seconds > 0)
            json.push_back({{"part", model.has_parts ? step_part_name(term.part) : "all"},
                            {"term", scale_term_name(term.term)},
                            {"seconds", term.seconds}});
    return json;
}

}  // namespace

std::string scale_text(const ScaleReport& report) {
    std::string text = verdict_text(report) + "\n";
    for (const std::string& note : report.notes) text += note + "\n";
    text += table_text(report) + losses_text(report) + forecast_text(report);
    return text + model_text(report) + next_text(report);
}

Json scale_json(const ScaleReport& report) {
    Json rows = Json::array(), forecasts = Json::array();
    for (const ScaleRow& row : report.rows) rows.push_back(json_of(row, report));
    for (const ScaleForecast& forecast : report.forecasts)
        forecasts.push_back(json_of(forecast, report));
    Json json = {{"verdict", verdict_text(report)},
                 {"ranks", report.advice.ranks},
                 {"unit", unit_name(report.unit)},
                 {"rows", rows},
                 {"forecasts", forecasts},
                 {"model", json_of(report.model)},
                 {"misfit", report.model.misfit},
                 {"notes", report.notes}};
    if (report.advice.worth_a_try) json["worth_a_try"] = *report.advice.worth_a_try;
    if (report.steps_total > 0) json["steps"] = report.steps_total;
    return json;
}

}  // namespace lockstep
