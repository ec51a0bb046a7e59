// SPDX-License-Identifier: Apache-2.0
#include "report/svg_charts.hpp"
#include "report/svg_parts.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double chart_width = 520, chart_height = 264;
constexpr Box plot{64, 40, 452, 224};

Axis axis_of_values(const ReportChart& chart) {
    double least = chart.curves.front().best_low, most = chart.curves.front().best_high;
    for (const ReportCurve& curve : chart.curves) {
        least = std::min(least, curve.best_low);
        most = std::max(most, curve.best_high);
    }
    constexpr double wide = 50;
    Axis axis = least > 0 && most > wide * least ? logarithmic_axis(least, most)
                                                 : linear_axis(least, most, 4);
    axis.from = plot.bottom;
    axis.to = plot.top;
    return axis;
}

Axis axis_of_steps(const ReportChart& chart) {
    std::int64_t last = 1;
    for (const ReportCurve& curve : chart.curves) last = std::max(last, curve.points.back().step);
    Axis axis = tight_axis(0, static_cast<double>(last), 5);
    axis.from = plot.left;
    axis.to = plot.right;
    return axis;
}

std::string value_grid(const Axis& axis) {
    std::string svg;
    for (const double tick : axis.ticks)
        svg +=
            svg_line(plot.left, axis.at(tick), plot.right, axis.at(tick), "grid") +
            svg_text(plot.left - 8, axis.at(tick) + 4, Anchor::end, "tick", tick_text(axis, tick));
    return svg + "\n";
}

/// Updates below the plot; above it samples, which are `batch` times as many.
std::string step_axes(const Axis& steps, std::int64_t batch) {
    std::string svg = svg_line(plot.left, plot.bottom, plot.right, plot.bottom, "axis");
    for (const double tick : steps.ticks)
        svg +=
            svg_line(steps.at(tick), plot.bottom, steps.at(tick), plot.bottom + 4, "axis") +
            svg_text(
                steps.at(tick), plot.bottom + 18, Anchor::middle, "tick", tick_text(steps, tick));
    svg += svg_text(plot.left - 12, plot.bottom + 18, Anchor::end, "label", "updates");
    if (batch <= 0) return svg + "\n";
    Axis samples = tight_axis(0, steps.most * static_cast<double>(batch), 4);
    samples.from = plot.left;
    samples.to = plot.right;
    const double y = plot.top - 10;
    for (const double tick : samples.ticks)
        svg += svg_line(samples.at(tick), y, samples.at(tick), y + 4, "axis") +
               svg_text(samples.at(tick), y - 5, Anchor::middle, "tick", tick_text(samples, tick));
    return svg + svg_text(plot.left - 12, y - 5, Anchor::end, "label", "samples") + "\n";
}

std::string curve_path(const ReportCurve& curve, const Axis& steps, const Axis& values) {
    std::string path;
    for (const ReportPoint& point : curve.points)
        path += fmt::format("{}{} {}",
                            path.empty() ? "M" : "L",
                            svg_number(steps.at(static_cast<double>(point.step))),
                            svg_number(values.at(point.value)));
    return path;
}

/// The range of each point, there and back again; "" where each is one value.
std::string band_path(const ReportCurve& curve, const Axis& steps, const Axis& values) {
    const bool has_range = std::ranges::any_of(
        curve.points, [](const ReportPoint& point) { return point.most > point.least; });
    std::string path;
    if (!has_range) return path;
    const auto go = [&](const ReportPoint& point, double value) {
        path += fmt::format("{}{} {}",
                            path.empty() ? "M" : "L",
                            svg_number(steps.at(static_cast<double>(point.step))),
                            svg_number(values.at(value)));
    };
    for (const ReportPoint& point : curve.points) go(point, point.most);
    for (std::size_t i = curve.points.size(); i-- > 0;) go(curve.points[i], curve.points[i].least);
    return path + "Z";
}

std::string curve_svg(const ReportCurve& curve,
                      std::size_t number,
                      double label_y,
                      const Axis& steps,
                      const Axis& values) {
    std::string svg;
    if (const std::string band = band_path(curve, steps, values); !band.empty())
        svg += fmt::format("<path class=\"band s{}\" d=\"{}\"/>", number, band);
    svg += fmt::format(
        "<path class=\"line s{}\" d=\"{}\"/>", number, curve_path(curve, steps, values));
    constexpr std::size_t few = 40;
    const std::size_t from = curve.points.size() <= few ? 0 : curve.points.size() - 1;
    for (std::size_t i = from; i < curve.points.size(); ++i)
        svg += fmt::format("<circle class=\"dot s{}\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>",
                           number,
                           svg_number(steps.at(static_cast<double>(curve.points[i].step))),
                           svg_number(values.at(curve.points[i].value)));
    return svg +
           svg_text(plot.right + 12,
                    label_y + 4,
                    Anchor::start,
                    fmt::format("name s{}", number),
                    curve.name) +
           "\n";
}

}  // namespace

std::string line_chart(const ReportChart& chart, std::int64_t batch, const std::string& id) {
    const Axis values = axis_of_values(chart), steps = axis_of_steps(chart);
    std::string description;
    for (const ReportCurve& curve : chart.curves)
        description += fmt::format("{}: from {} to {} at update {}. ",
                                   curve.name,
                                   figure_text(curve.points.front().value),
                                   figure_text(curve.last),
                                   curve.points.back().step);
    std::string svg = open_svg(chart_width, chart_height, id, chart.title, description);
    svg += value_grid(values) + step_axes(steps, batch);
    double label_y = -100;
    for (std::size_t i = 0; i < chart.curves.size(); ++i) {
        const double end_y = values.at(chart.curves[i].points.back().value);
        const bool is_near = std::abs(end_y - label_y) < 13;
        label_y = !is_near                                        ? end_y
                  : end_y < label_y || label_y > plot.bottom - 13 ? label_y - 13
                                                                  : label_y + 13;
        svg += curve_svg(chart.curves[i], i, label_y, steps, values);
    }
    return svg + "</svg>\n";
}

}  // namespace lockstep
