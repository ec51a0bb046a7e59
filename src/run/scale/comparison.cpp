// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

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
        return first.deciding.contains(name) || second.deciding.contains(name) || name == "run";
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

}  // namespace lockstep
