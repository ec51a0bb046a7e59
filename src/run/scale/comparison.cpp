// SPDX-License-Identifier: Apache-2.0
// Tested: run/run_figures_test.cpp, run/scaling_test.cpp
#include "lockstep/run/comparison.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t stretches = 10;

std::string member_of(const Json& config, const std::string& name, const char* member) {
    return config.value(name, Json()).value(member, Json("")).as_text();
}

std::set<std::string> names_of(const Json& first, const Json& second) {
    std::set<std::string> names;
    for (const Json* json : {&first, &second})
        if (json->is_object())
            for (const auto& [name, value] : json->items()) names.insert(name);
    return names;
}

// As text; a setting that does not decide has its value beside its origin.
std::string value_of(const RunRecord& record, Json RunRecord::*part, const std::string& name) {
    return part == &RunRecord::config ? member_of(record.config, name, "value")
                                      : (record.*part).value(name, Json("")).as_text();
}

double mean_of(std::span<const double> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Sums over all ranks, by the step's number: ranks may have kept different steps, and some twice.
struct PhaseSum {
    double seconds = 0, times = 0;
};
std::map<std::int64_t, PhaseSum> sums_by_step(const RunFigures& run, Phase phase) {
    std::map<std::int64_t, PhaseSum> sums;
    for (const RankFigures& rank : run.ranks)
        for (const StepBudget& step : rank.steps) {
            PhaseSum& sum = sums[step.step];
            sum.seconds += step.phases[phase];
            ++sum.times;
        }
    return sums;
}

// Of the first rank that kept steps, and of the steps that mean_step() averages over.
template <class Seconds>
Scatter scatter_of_steps(const RunFigures& run, Seconds&& seconds) {
    const auto rank =
        std::ranges::find_if(run.ranks, [](const RankFigures& one) { return !one.steps.empty(); });
    if (rank == run.ranks.end()) return {};
    std::vector<double> all;
    for (const StepBudget& step : rank->steps)
        if (&step != &rank->steps.front() || rank->steps.size() == 1) all.push_back(seconds(step));
    return scatter_of(all);
}

// Settings whose values change the amount of work of a step, or the way in which it is done.
constexpr auto work_settings = std::to_array<std::string_view>({"model",
                                                                "data-digest",
                                                                "batch",
                                                                "task",
                                                                "inputs",
                                                                "device",
                                                                "channels",
                                                                "no-bias",
                                                                "layers",
                                                                "heads",
                                                                "width",
                                                                "optimizer",
                                                                "threads",
                                                                "isa",
                                                                "precision",
                                                                "micro-batches",
                                                                "transform",
                                                                "split",
                                                                "plain"});

bool is_work(std::string_view setting) {
    return std::ranges::find(work_settings, setting) != work_settings.end();
}

// Cores' worth of time that the ranks of one node have together.
struct NodeRoom {
    double cores = 0;
    double most = std::numeric_limits<double>::infinity();  ///< limit of its control group
};

int threads_of(const RunRecord& record) {
    const Json* const threads = record.contract.find("threads");
    return threads && threads->is_number_integer()
               ? std::max(1, static_cast<int>(threads->get<std::int64_t>()))
               : 1;
}

// Ranks whose cores nobody recorded have each their own, and so have those that compute on GPUs.
double room_of(const RunFigures& run) {
    constexpr double no_bound = std::numeric_limits<double>::infinity();
    if (run.record.deciding.value("device", "cpu") != "cpu") return no_bound;
    std::map<std::string, NodeRoom> nodes;
    for (const RankFigures& rank : run.ranks) {
        if (!rank.place) return no_bound;
        NodeRoom& node = nodes[rank.facts.host];
        node.cores += static_cast<double>(rank.place->cores) / std::max(1, rank.place->sharers);
        if (rank.place->quota) node.most = std::min(node.most, *rank.place->quota);
    }
    double cores = 0;
    for (const auto& [host, node] : nodes) cores += std::min(node.cores, node.most);
    return std::max(1.0, cores / threads_of(run.record));
}

std::string value_text(const RunFigures& run, const std::string& name) {
    const Json* const value = run.record.deciding.find(name);
    return value ? value->dump() : "not recorded";
}

// Names with other values in `run` than in `first`.
std::vector<std::string> differing(const RunFigures& first, const RunFigures& run) {
    std::vector<std::string> names;
    for (const SettingDifference& setting : settings_that_differ(first.record, run.record))
        if (setting.kind == SettingKind::deciding) names.push_back(setting.name);
    return names;
}

// Computing that turns on cores made longer is no fault of the smaller batches.
StepParts losses_of(const ScalePoint& base, const ScalePoint& point) {
    StepParts losses{};
    for (std::size_t i = 0; i < losses.size(); ++i)
        losses[i] = (*point.parts)[i] - (*base.parts)[i] * base.ranks / point.ranks;
    const double ideal_s = (*base.parts)[StepPart::computing] * base.ranks / point.ranks;
    const double turns = point.turns() / base.turns(), shared_s = ideal_s * (turns - 1);
    losses[StepPart::sharing] += shared_s;
    losses[StepPart::computing] -= shared_s;
    for (double& loss : losses) loss /= point.seconds;
    return losses;
}

// By more than both may be off.
bool is_faster(const ScalePoint& point, const ScalePoint& than) {
    return than.seconds - point.seconds > 2 * std::hypot(point.error_s, than.error_s);
}

}  // namespace

std::vector<SettingDifference> settings_that_differ(const RunRecord& first,
                                                    const RunRecord& second) {
    std::vector<SettingDifference> found;
    // Those of one part of the records, but for what `is_told` elsewhere.
    const auto add = [&](Json RunRecord::*part, SettingKind kind, auto&& is_told) {
        for (const std::string& name : names_of(first.*part, second.*part)) {
            SettingDifference setting{.name = name,
                                      .kind = kind,
                                      .first = value_of(first, part, name),
                                      .second = value_of(second, part, name),
                                      .first_origin = member_of(first.config, name, "origin"),
                                      .second_origin = member_of(second.config, name, "origin")};
            if (setting.first != setting.second && !is_told(name))
                found.push_back(std::move(setting));
        }
    };
    add(&RunRecord::deciding, SettingKind::deciding, [](const std::string&) { return false; });
    // The others of it are settings, on which the canary stands, too.
    const bool same_settings = found.empty();
    add(&RunRecord::contract, SettingKind::contract, [&](const std::string& name) {
        return name != "processor" && (name != "canary" || !same_settings);
    });
    add(&RunRecord::versions, SettingKind::contract, [](const std::string& name) {
        return name == "libtorch";
    });
    add(&RunRecord::config, SettingKind::free, [&](const std::string& name) {
        return first.deciding.contains(name) || second.deciding.contains(name) || is_of_start(name);
    });
    return found;
}

Scatter scatter_of(std::span<const double> values) {
    if (values.empty()) return {};
    Scatter scatter{
        .mean = mean_of(values), .error = 0, .count = static_cast<std::int64_t>(values.size())};
    const std::size_t parts = std::min(stretches, values.size() / 2);
    if (parts < 2) return scatter;
    double squares = 0;
    for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t begin = values.size() * i / parts, end = values.size() * (i + 1) / parts;
        squares += std::pow(mean_of(values.subspan(begin, end - begin)) - scatter.mean, 2);
    }
    scatter.error = std::sqrt(squares / static_cast<double>(parts * (parts - 1)));
    return scatter;
}

Scatter step_scatter(const RunFigures& run) {
    return scatter_of_steps(run, [](const StepBudget& step) { return step.wall_s(); });
}

Scatter phase_scatter(const RunFigures& run, Phase phase) {
    const auto sums = sums_by_step(run, phase);
    return scatter_of_steps(run, [&](const StepBudget& step) {
        const PhaseSum& sum = sums.at(step.step);
        return sum.seconds / sum.times;
    });
}

bool is_beyond_scatter(const Scatter& first, const Scatter& second) {
    if (std::min(first.count, second.count) < 4) return false;
    return std::abs(first.mean - second.mean) > 2 * std::hypot(first.error, second.error);
}

std::vector<CurvePoint> evaluation_curve(const RunFigures& run,
                                         const std::string& name,
                                         double samples_each) {
    std::vector<CurvePoint> curve;
    for (const EvaluationMetrics& evaluation : run.evaluations)
        if (const auto figure = evaluation.figures.find(name); figure != evaluation.figures.end())
            curve.push_back({static_cast<double>(evaluation.step) * samples_each, figure->second});
    return curve;
}

std::optional<double> value_at(std::span<const CurvePoint> curve, double at) {
    constexpr double as_near = 0.01;
    const CurvePoint* before = nullptr;
    for (const CurvePoint& point : curve) {
        if (std::abs(point.at - at) <= as_near * at) return point.value;
        if (point.at < at) {
            before = &point;
        } else if (before) {
            const double share = (at - before->at) / (point.at - before->at);
            return before->value + share * (point.value - before->value);
        } else {
            return {};
        }
    }
    return {};
}

std::optional<CurveGap> curve_gap(std::span<const CurvePoint> first,
                                  std::span<const CurvePoint> second) {
    if (first.empty() || second.empty()) return {};
    const double at = std::min(first.back().at, second.back().at);
    const auto a = value_at(first, at);
    const auto b = value_at(second, at);
    if (!a || !b) return {};
    return CurveGap{at, *a, *b};
}

ScalePoint scale_point(const RunFigures& run) {
    const MeanStep mean = mean_step(run);
    check(mean.steps > 0 && mean.wall_s() > 0, [&] {
        return Error("E420",
                     fmt::format("'{}' has no recorded steps", printable(run.root.string())),
                     "ranks record the time of each step in logs/iN/rank-NNNNN.steps; none of its "
                     "starts did a step, or an earlier version made it",
                     "train some steps with this version");
    });
    return {.ranks = static_cast<int>(run.ranks.size()),
            .seconds = mean.wall_s(),
            .error_s = step_scatter(run).error,
            .room = room_of(run),
            .parts = parts_of(mean.phases)};
}

void check_same_work(std::span<const RunFigures> runs) {
    for (const RunFigures& run : runs)
        for (const std::string& name : differing(runs.front(), run))
            check(!is_work(name), [&] {
                return Error("E421",
                             fmt::format("the runs do different work: {} is {} in '{}' and {} in "
                                         "'{}'",
                                         name,
                                         value_text(runs.front(), name),
                                         printable(runs.front().root.string()),
                                         value_text(run, name),
                                         printable(run.root.string())),
                             "scaling can be measured only if nothing else changes; --batch is "
                             "that of all ranks together",
                             "train with the same settings on each number of ranks; use 'lockstep "
                             "compare A B' for other runs");
            });
}

std::vector<std::string> other_differences(std::span<const RunFigures> runs) {
    std::vector<std::string> names;
    for (const RunFigures& run : runs)
        for (const std::string& name : differing(runs.front(), run))
            if (!is_work(name) && std::ranges::find(names, name) == names.end())
                names.push_back(name);
    return names;
}

std::string_view step_part_name(StepPart part) {
    constexpr std::array<std::string_view, static_cast<std::size_t>(StepPart::count)> names = {
        "shared cores",
        "computing",
        "data",
        "copies to the GPU",
        "exposed all-reduce",
        "slowest rank",
        "update",
        "saving",
        "other"};
    return names.at(static_cast<std::size_t>(part));
}

StepParts parts_of(const PhaseSeconds& phases) {
    const auto part_of = [](Phase phase) {
        if (phase == Phase::data) return StepPart::data;
        if (phase == Phase::forward || phase == Phase::backward) return StepPart::computing;
        if (phase == Phase::comm) return StepPart::reducing;
        if (phase == Phase::wait) return StepPart::waiting;
        if (phase == Phase::update) return StepPart::updating;
        if (phase == Phase::checkpoint) return StepPart::saving;
        return phase == Phase::copy ? StepPart::copying : StepPart::other;
    };
    StepParts parts{};
    for (std::size_t i = 0; i < phases.size(); ++i)
        parts[part_of(static_cast<Phase>(i))] += phases[i];
    return parts;
}

ScaleRow scale_row(const ScalePoint& base, const ScalePoint& point) {
    ScaleRow row{.point = point};
    row.speedup = base.seconds / point.seconds;
    row.ideal_s = base.seconds * base.ranks / point.ranks;
    row.efficiency = row.ideal_s / point.seconds;
    if (base.parts && point.parts) row.losses = losses_of(base, point);
    return row;
}

std::vector<ScaleRow> scale_table(std::vector<ScalePoint> points) {
    expect(!points.empty(), "a table needs points");
    std::ranges::sort(points, {}, &ScalePoint::ranks);
    std::vector<ScaleRow> rows;
    for (const ScalePoint& point : points) rows.push_back(scale_row(points.front(), point));
    return rows;
}

std::optional<StepPart> largest_loss(const ScaleRow& row) {
    if (!row.losses) return {};
    const auto largest = std::ranges::max_element(*row.losses);
    if (*largest <= 0) return {};
    return static_cast<StepPart>(largest - row.losses->begin());
}

// The rest after rounding down goes to those that lost most.
std::vector<std::int64_t> rounded_parts(std::span<const double> parts, double whole, double units) {
    std::vector<std::int64_t> rounded;
    std::int64_t left = std::llround(whole * units);
    for (const double part : parts) {
        rounded.push_back(static_cast<std::int64_t>(std::floor(part * units)));
        left -= rounded.back();
    }
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) {
        return parts[i] * units - static_cast<double>(rounded[i]);
    });
    for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++rounded[order[i]];
    for (std::size_t i = order.size(); left < 0 && i > 0; --i, ++left) --rounded[order[i - 1]];
    return rounded;
}

ScaleAdvice advise_scale(std::span<const ScaleRow> rows,
                         std::span<const ScaleForecast> forecasts,
                         double least_efficiency) {
    expect(!rows.empty(), "advice needs rows");
    const ScaleRow* best = &rows.front();
    const ScaleRow* fastest = best;
    ScaleAdvice advice;
    for (const ScaleRow& row : rows.subspan(1)) {
        const bool gains = is_faster(row.point, fastest->point);
        if (gains) fastest = &row;
        if (gains && row.efficiency >= least_efficiency) {
            best = &row;
            advice.not_worth.reset();
        } else if (!advice.not_worth) {
            advice.not_worth = row.point.ranks;
            advice.not_worth_is_slower = !gains;
        }
    }
    advice.ranks = best->point.ranks;
    for (const ScaleForecast& forecast : forecasts)
        if (forecast.row.point.ranks > rows.back().point.ranks &&
            forecast.row.efficiency >= least_efficiency &&
            forecast.row.point.seconds < fastest->point.seconds)
            advice.worth_a_try = std::max(advice.worth_a_try.value_or(0), forecast.row.point.ranks);
    return advice;
}

}  // namespace lockstep
