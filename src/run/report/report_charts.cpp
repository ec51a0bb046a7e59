// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/log_text.hpp"

#include "report/report_parts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lockstep {
namespace {

struct Sample {
    std::int64_t step = 0;
    double value = 0;
};

ReportPoint point_of(std::span<const Sample> part) {
    ReportPoint point{part.back().step, 0, part.front().value, part.front().value};
    for (const Sample& sample : part) {
        point.value += sample.value / static_cast<double>(part.size());
        point.least = std::min(point.least, sample.value);
        point.most = std::max(point.most, sample.value);
    }
    return point;
}

ReportCurve curve_of(CurveSource source, std::string name, std::vector<Sample> samples) {
    std::erase_if(samples, [](const Sample& sample) { return !std::isfinite(sample.value); });
    std::ranges::stable_sort(samples, {}, &Sample::step);
    ReportCurve curve{.source = source, .name = std::move(name)};
    if (samples.empty()) return curve;
    const std::size_t each = (samples.size() + ReportLimits::points - 1) / ReportLimits::points;
    const std::span<const Sample> all(samples);
    for (std::size_t i = 0; i < all.size(); i += each)
        curve.points.push_back(point_of(all.subspan(i, std::min(each, all.size() - i))));
    const auto [low, high] = std::ranges::minmax_element(all, {}, &Sample::value);
    curve.last = all.back().value;
    curve.best_low = low->value;
    curve.low_step = low->step;
    curve.best_high = high->value;
    curve.high_step = high->step;
    return curve;
}

template <class Value>
ReportCurve curve_of_reports(const RunFigures& run, const char* name, Value&& value) {
    std::vector<Sample> samples;
    for (const StepsEvent& event : run.reports)
        samples.push_back({event.report.step, value(event.report)});
    return curve_of(CurveSource::reports, name, std::move(samples));
}

/// "test_top5_accuracy" is shown as "top5 accuracy".
std::string title_of(const std::string& figure) {
    std::string title = figure.starts_with("test_") ? figure.substr(5) : figure;
    std::ranges::replace(title, '_', ' ');
    return plain_text(title);
}

void add(std::vector<ReportChart>& charts, ReportChart chart) {
    std::erase_if(chart.curves, [](const ReportCurve& curve) { return curve.points.empty(); });
    if (!chart.curves.empty()) charts.push_back(std::move(chart));
}

}  // namespace

std::vector<ReportChart> report_charts(const RunFigures& run) {
    std::map<std::string, std::vector<Sample>> tested;
    for (const EvaluationMetrics& evaluation : run.evaluations)
        for (const auto& [name, value] : evaluation.figures)
            tested[name].push_back({evaluation.step, value});
    std::vector<ReportChart> charts;
    add(charts,
        {ChartKind::loss,
         "loss",
         {curve_of_reports(run, "training", [](const StepReport& at) { return at.loss; }),
          curve_of(CurveSource::evaluations, "test", std::move(tested["test_loss"]))}});
    tested.erase("test_loss");
    for (auto& [name, samples] : tested)
        add(charts,
            {ChartKind::figure,
             "test " + title_of(name),
             {curve_of(CurveSource::evaluations, "test", std::move(samples))}});
    // A rate that never changes is a fact, no curve.
    auto rate = curve_of_reports(run, "rate", [](const StepReport& at) { return at.lr; });
    if (rate.best_low < rate.best_high)
        add(charts, {ChartKind::learning_rate, "learning rate", {std::move(rate)}});
    add(charts,
        {ChartKind::speed,
         "samples per second",
         {curve_of_reports(run, "speed", [](const StepReport& at) { return at.samples_per_s; })}});
    return charts;
}

}  // namespace lockstep
