// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/comparison.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/run_status.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "runs/scale_report.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* scale_help =
    R"(Reports how the speed grows with the number of ranks, how many ranks are worth it, and why. Give one
run for each number of ranks, with the same model, data and --batch (of all ranks together), such as
'lockstep train --np 1', '--np 2', '--np 4' with --max-steps 300; or times that you measured yourself.

Efficiency is the speed-up divided by the ranks. The part missing to 100 % is split by the phases of
each step on each rank. A rank's share of the work of the fewest ranks counts as due, and the rest as
lost. The parts sum to the loss; '+' is a gain.

The forecast fits few terms to the times (divided work, work that each rank repeats, messages, bytes,
the slowest of many ranks) and states its uncertainty. It is for ranks with cores of their own: runs
whose ranks shared cores are left out, and there is no forecast for more ranks than cores. --cores
sets the number of cores. The first step of a start is left out, as it warms caches up.

Examples:
  lockstep scale runs/p1 runs/p2 runs/p4
  lockstep scale runs/p1 runs/p2 --forecast 8,16 --cores 16 --least-efficiency 70
  lockstep scale --times 1=707,2=393,3=276,4=208,5=172,6=142,7=122,8=109 --forecast 16
)";

struct ScaleOptions {
    std::string times, forecast;
    double least_efficiency = 50;
    int cores = 0;
    bool json = false;
};

constexpr int most_ranks = 1'000'000;
constexpr std::size_t most_runs = 64;

Error bad_times(const std::string& given) {
    return Error("E103",
                 fmt::format("--times is '{}'", printable(given)),
                 "it must be ranks and seconds, each number of ranks once",
                 "for example --times 1=707,2=393,4=208");
}

std::optional<int> ranks_in(std::string_view text) {
    const auto ranks = parse_integer(text);
    if (!ranks || *ranks < 1 || *ranks > most_ranks) return {};
    return static_cast<int>(*ranks);
}

ScalePoint point_in(const std::string& given, const std::string& entry) {
    const auto equals = entry.find('=');
    check(equals != entry.npos, [&] { return bad_times(given); });
    const auto ranks = ranks_in(std::string_view(entry).substr(0, equals));
    const auto seconds = parse_real(std::string_view(entry).substr(equals + 1));
    constexpr double shortest_s = 1e-9, longest_s = 1e12;
    check(ranks && seconds && *seconds >= shortest_s && *seconds <= longest_s,
          [&] { return bad_times(given); });
    return {.ranks = *ranks, .seconds = *seconds};
}

std::vector<ScalePoint> given_points(const std::string& given) {
    std::vector<ScalePoint> points;
    for (const std::string& entry : split(given, ',')) {
        points.push_back(point_in(given, entry));
        check(std::ranges::count(points, points.back().ranks, &ScalePoint::ranks) == 1,
              [&] { return bad_times(given); });
    }
    return points;
}

// Twice and four times the most that were measured, unless others are asked for.
std::vector<int> forecast_ranks(const std::string& given, int most) {
    if (given.empty()) return {2 * most, 4 * most};
    std::vector<int> all;
    for (const std::string& entry : split(given, ',')) {
        const auto ranks = ranks_in(entry);
        check(ranks.has_value(),
              "E103",
              fmt::format("--forecast is '{}'", printable(given)),
              fmt::format("it must be numbers of ranks from 1 to {}", most_ranks),
              "for example --forecast 16,32");
        all.push_back(*ranks);
    }
    std::ranges::sort(all);
    return all;
}

void check_several(std::size_t points) {
    check(points >= 2,
          "E105",
          points == 0 ? "neither runs nor --times are given" : "one number of ranks is not enough",
          "efficiency compares the speed with different numbers of ranks",
          "give runs with several numbers of ranks, or --times 1=707,2=393");
}

std::vector<RunFigures> read_runs(const std::vector<std::string>& places) {
    std::vector<RunFigures> runs;
    for (const std::string& place : places) {
        check_is_there(place);
        runs.push_back(read_run_figures(place));
    }
    for (const RunFigures& run : runs)
        for (const RunFigures& other : runs)
            check_fits(
                &run == &other || run.ranks.empty() || run.ranks.size() != other.ranks.size(),
                fmt::format("'{}' and '{}' both have {} rank(s)",
                            printable(run.root.string()),
                            printable(other.root.string()),
                            run.ranks.size()),
                "each number of ranks needs exactly one run",
                "drop one; 'lockstep compare A B' is for two such runs");
    return runs;
}

// Returns the metric that the evaluations of all runs have, accuracy first.
std::string figure_of(std::span<const RunFigures> runs) {
    std::vector<std::string> names{"test_accuracy", "test_loss"};
    for (const RunFigures& run : runs)
        for (const EvaluationMetrics& evaluation : run.evaluations)
            for (const auto& [name, value] : evaluation.figures) names.push_back(name);
    const auto has = [](const RunFigures& run, const std::string& name) {
        return !run.evaluations.empty() && run.evaluations.back().figures.contains(name);
    };
    const auto found = std::ranges::find_if(names, [&](const std::string& name) {
        return std::ranges::any_of(runs, [&](const RunFigures& run) { return has(run, name); });
    });
    return found == names.end() ? "" : *found;
}

std::int64_t given_number(const RunFigures& run, const char* setting) {
    const Json* const given = run.record.config.find(setting);
    return given ? parse_integer(given->value("value", "")).value_or(0) : 0;
}

// Where --epochs decide, the steps of one follow from those of all; not where the run was made with
// other --epochs than it goes on with, which its reports show.
std::optional<double> epoch_steps(const RunFigures& run, double steps_total) {
    const std::int64_t epochs = given_number(run, "epochs");
    if (epochs < 1 || given_number(run, "max-steps") > 0 || steps_total <= 0) return {};
    const double steps = steps_total / static_cast<double>(epochs);
    for (const StepsEvent& event : run.reports) {
        const auto begun = static_cast<double>(event.report.epoch) * steps;
        const auto step = static_cast<double>(event.report.step);
        if (step < begun || step > begun + steps) return {};
    }
    return steps;
}

ScaleRun facts_of(const RunFigures& run, const std::string& figure, double steps_total) {
    ScaleRun facts{.place = run.root.string(), .epoch_steps = epoch_steps(run, steps_total)};
    if (run.evaluations.empty()) return facts;
    const auto& figures = run.evaluations.back().figures;
    if (const auto found = figures.find(figure); found != figures.end())
        facts.accuracy = found->second;
    return facts;
}

std::vector<std::string> notes_on(std::span<const RunFigures> runs) {
    std::vector<std::string> notes;
    const auto others = other_differences(runs);
    if (!others.empty())
        notes.push_back(
            printable(fmt::format("the runs differ in {}, too", fmt::join(others, ", "))));
    for (const RunFigures& run : runs)
        for (const SettingDifference& setting :
             settings_that_differ(runs.front().record, run.record))
            if (setting.name == "processor")
                notes.push_back(fmt::format("'{}' is of another processor: {}",
                                            printable(run.root.string()),
                                            printable(setting.second)));
    return notes;
}

void add_runs(ScaleReport& report,
              std::vector<ScalePoint>& points,
              std::span<const RunFigures> runs) {
    check_same_work(runs);
    const bool is_on_cpu = runs.front().record.deciding.value("device", "cpu") == "cpu";
    report.unit = is_on_cpu ? ScaleUnit::core : ScaleUnit::gpu;
    report.figure = figure_of(runs);
    report.notes = notes_on(runs);
    report.batch = runs.front().record.deciding.value("batch", 0.0);
    report.threads = runs.front().record.contract.value("threads", 1);
    for (const RunFigures& run : runs) {
        points.push_back(scale_point(run));
        const auto state = read_run_state(run.root);
        const double steps = state ? static_cast<double>(state->steps_total) : 0;
        report.steps_total = std::max(report.steps_total, steps);
        report.runs[points.back().ranks] = facts_of(run, report.figure, steps);
    }
}

std::string numbers_text(const std::vector<int>& ranks) {
    return fmt::format("{} ranks", fmt::join(ranks, ", "));
}

// Nobody gains by ranks that share cores: they get a sentence.
void add_forecasts(ScaleReport& report, std::vector<ScalePoint> points, std::vector<int> ranks) {
    std::vector<int> without;
    for (const ScalePoint& point : points)
        if (point.turns() > 1) without.push_back(point.ranks);
    std::erase_if(points, [](const ScalePoint& point) { return point.turns() > 1; });
    if (!without.empty())
        report.notes.push_back(
            fmt::format("ranks shared cores in the run of {}: the forecast leaves it out",
                        numbers_text(without)));
    if (points.empty()) return;
    report.model = fit_scale_model(points);
    without.clear();
    for (const int count : ranks)
        if (count > report.room)
            without.push_back(count);
        else
            report.forecasts.push_back(forecast_scale(points, count));
    if (!without.empty())
        report.notes.push_back(
            fmt::format("no forecast of {}: they would share cores, and be no faster; --cores N "
                        "makes a forecast for N cores",
                        numbers_text(without)));
}

ScaleReport report_of(const ScaleOptions& options, const std::vector<std::string>& places) {
    ScaleReport report{.least_efficiency = options.least_efficiency / 100};
    std::vector<ScalePoint> points;
    if (options.times.empty()) {
        const std::vector<RunFigures> runs = read_runs(places);
        check_several(runs.size());
        add_runs(report, points, runs);
    } else {
        report.is_given = true;
        points = given_points(options.times);
        check_several(points.size());
    }
    report.rows = scale_table(points);
    report.room = options.cores > 0 ? std::max(1.0, options.cores / double(report.threads))
                                    : std::ranges::max_element(points, {}, &ScalePoint::room)->room;
    add_forecasts(report, points, forecast_ranks(options.forecast, report.rows.back().point.ranks));
    report.advice = advise_scale(report.rows, report.forecasts, report.least_efficiency);
    return report;
}

int show(const ScaleOptions& options, const Invocation& call) {
    check_fits(options.times.empty() || call.positionals.empty(),
               "runs and --times are both given",
               "the times of runs are read from the runs");
    const ScaleReport report = report_of(options, call.positionals);
    print_once(options.json ? scale_json(report).dump(2) + "\n" : scale_text(report));
    return 0;
}

}  // namespace

Command scale_command() {
    auto options = std::make_shared<ScaleOptions>();
    return {
        .name = "scale",
        .summary = "show how the speed grows with the ranks, and how many are worth it",
        .usage = "lockstep scale RUN RUN...|--times P=SECONDS,... [options]",
        .text = scale_help,
        .table = {{"Options",
                   {list_option(
                        "times P=SECONDS",
                        options->times,
                        "times of the same work instead of runs, each rank with its own cores"),
                    list_option("forecast P,...",
                                options->forecast,
                                "numbers of ranks to forecast; unset: two and four times the "
                                "largest that was measured"),
                    whole_option("cores",
                                 options->cores,
                                 {0, most_ranks},
                                 "cores of all ranks in the forecast; 0: as many as the runs had"),
                    real_option("least-efficiency",
                                options->least_efficiency,
                                {0, 100},
                                "efficiency in percent below which more ranks are not worth it")}},
                  json_group(options->json)},
        .optional_positionals = most_runs,
        .run = [options](const Invocation& call) { return show(*options, call); }};
}

}  // namespace lockstep
