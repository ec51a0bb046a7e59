// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Part of a drawing.
struct Box {
    double left, top, right, bottom;
};

/// The end of a text that is at its position.
enum class Anchor { start, middle, end };

double finite(double value) {
    return std::isfinite(value) ? value : 0;
}

/// Returns a position, to a tenth: "12.3", "12".
std::string svg_number(double value) {
    std::string text = fmt::format("{:.1f}", finite(value));
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text == "-0" ? "0" : text;
}

/// Begins a drawing that screen readers call `title`. `id`: unique in the page.
std::string open_svg(double width,
                     double height,
                     const std::string& id,
                     const std::string& title,
                     const std::string& description) {
    return fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-labelledby=\"{2}-t {2}-d\">"
        "<title id=\"{2}-t\">{3}</title><desc id=\"{2}-d\">{4}</desc>\n",
        svg_number(width),
        svg_number(height),
        id,
        html_text(title),
        html_text(description));
}

std::string svg_text(
    double x, double y, Anchor anchor, std::string_view css, const std::string& text) {
    constexpr std::array<std::string_view, 3> names{"start", "middle", "end"};
    return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
                       svg_number(x),
                       svg_number(y),
                       names[static_cast<std::size_t>(anchor)],
                       css,
                       html_text(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view css) {
    return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>",
                       svg_number(x1),
                       svg_number(y1),
                       svg_number(x2),
                       svg_number(y2),
                       css);
}

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
    return tight_axis(0, static_cast<double>(last), 5, plot.left, plot.right);
}

std::string value_grid(const Axis& axis) {
    std::string svg;
    for (const double tick : axis.ticks)
        svg +=
            svg_line(plot.left, axis.at(tick), plot.right, axis.at(tick), "grid") +
            svg_text(plot.left - 8, axis.at(tick) + 4, Anchor::end, "tick", tick_text(axis, tick));
    return svg + "\n";
}

/// The ticks of a horizontal axis at `y`, with their texts at `text_y`.
std::string step_ticks(const Axis& axis, double y, double text_y) {
    std::string svg;
    for (const double tick : axis.ticks)
        svg += svg_line(axis.at(tick), y, axis.at(tick), y + 4, "axis") +
               svg_text(axis.at(tick), text_y, Anchor::middle, "tick", tick_text(axis, tick));
    return svg;
}

/// Updates below the plot; above it samples, which are `batch` times as many.
std::string step_axes(const Axis& steps, std::int64_t batch) {
    std::string svg = svg_line(plot.left, plot.bottom, plot.right, plot.bottom, "axis");
    svg += step_ticks(steps, plot.bottom, plot.bottom + 18) +
           svg_text(plot.left - 12, plot.bottom + 18, Anchor::end, "label", "updates");
    if (batch <= 0) return svg + "\n";
    const Axis samples =
        tight_axis(0, steps.most * static_cast<double>(batch), 4, plot.left, plot.right);
    const double y = plot.top - 10;
    return svg + step_ticks(samples, y, y - 5) +
           svg_text(plot.left - 12, y - 5, Anchor::end, "label", "samples") + "\n";
}

/// Draws a line from the end of a path.
void extend(std::string& path, double x, double y) {
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", svg_number(x), svg_number(y));
}

/// The range of each point, there and back again; "" where each is one value.
std::string band_path(const ReportCurve& curve, const Axis& steps, const Axis& values) {
    const bool has_range = std::ranges::any_of(
        curve.points, [](const ReportPoint& point) { return point.most > point.least; });
    std::string path;
    if (!has_range) return path;
    const auto go = [&](const ReportPoint& point, double value) {
        extend(path, steps.at(static_cast<double>(point.step)), values.at(value));
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
    std::string svg, path;
    if (const std::string band = band_path(curve, steps, values); !band.empty())
        svg += fmt::format("<path class=\"band s{}\" d=\"{}\"/>", number, band);
    for (const ReportPoint& point : curve.points)
        extend(path, steps.at(static_cast<double>(point.step)), values.at(point.value));
    svg += fmt::format("<path class=\"line s{}\" d=\"{}\"/>", number, path);
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

constexpr double page_width = 1000;

/// A part of a bar, with its letter where there is room.
std::string part_svg(const PartWord& part, double x, double width, double y, double height) {
    std::string svg =
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"c-{}\"/>",
                    svg_number(x),
                    svg_number(y),
                    svg_number(std::max(width - 1, 0.4)),
                    svg_number(height),
                    part.css);
    if (width >= 15)
        svg += svg_text(x + width / 2 - 0.5,
                        y + height / 2 + 4,
                        Anchor::middle,
                        fmt::format("in-{}", part.css),
                        std::string(1, part.letter));
    return svg;
}

double sum_of(const BarRow& row) {
    double sum = 0;
    for (const double value : row.values) sum += std::isfinite(value) ? value : 0;
    return sum;
}

std::size_t level_of(double ratio) {
    std::size_t level = 0;
    while (level + 1 < heat_levels.size() && ratio >= heat_levels[level].below) ++level;
    return level;
}

constexpr Box heat_plot{150, 8, 930, 0};

/// The cells of one level as one path: neighbours in a row are one rectangle.
std::string level_path(const HeatMap& heat, std::size_t level, double height) {
    const double width =
        (heat_plot.right - heat_plot.left) / static_cast<double>(heat.first_step.size());
    std::string path;
    for (std::size_t r = 0; r < heat.rows.size(); ++r) {
        const std::vector<double>& ratio = heat.rows[r].ratio;
        for (std::size_t i = 0; i < ratio.size();) {
            std::size_t end = i;
            while (end < ratio.size() && std::isfinite(ratio[end]) && level_of(ratio[end]) == level)
                ++end;
            if (end > i)
                path += fmt::format("M{} {}h{}v{}h-{}z",
                                    svg_number(heat_plot.left + static_cast<double>(i) * width),
                                    svg_number(heat_plot.top + static_cast<double>(r) * height),
                                    svg_number(static_cast<double>(end - i) * width),
                                    svg_number(height - 1),
                                    svg_number(static_cast<double>(end - i) * width));
            i = std::max(end, i + 1);
        }
    }
    return path;
}

std::string heat_axis(const HeatMap& heat, double bottom) {
    const Axis steps = tight_axis(static_cast<double>(heat.first_step.front()),
                                  static_cast<double>(heat.last_step) + 1,
                                  8,
                                  heat_plot.left,
                                  heat_plot.right);
    return step_ticks(steps, bottom, bottom + 18) +
           svg_text(heat_plot.left - 10, bottom + 18, Anchor::end, "label", "updates") + "\n";
}

/// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= least * (1 - 1e-9)) return factor * power;
    return 10 * power;
}

double tick_step(double least, double most, int ticks) {
    const double range = most - least;
    return range > 0 && std::isfinite(range) ? round_step(range / ticks) : 1;
}

void add_ticks(Axis& axis, double step) {
    const double first = std::ceil(axis.least / step - 1e-9);
    for (int i = 0; i < 50; ++i) {
        const double tick = (first + i) * step;
        if (tick > axis.most + 1e-9 * step) break;
        axis.ticks.push_back(std::abs(tick) < 1e-9 * step ? 0 : tick);
    }
}

/// Digits behind the point that tell ticks apart.
int digits_of(const Axis& axis, double tick) {
    double step = std::abs(tick);
    if (axis.scale == AxisScale::linear && axis.ticks.size() > 1)
        step = axis.ticks[1] - axis.ticks[0];
    if (!(step > 0)) return 0;
    return static_cast<int>(std::clamp(std::ceil(-std::log10(step) - 1e-9), 0.0, 12.0));
}

}  // namespace

std::string html_text(std::string_view text) {
    static const std::map<char, std::string_view> entities = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    std::string out;
    for (const char c : printable(text)) {
        const auto found = entities.find(c);
        out += found == entities.end() ? std::string_view(&c, 1) : found->second;
    }
    return out;
}

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

std::string stacked_bars(const BarChart& chart, const std::string& id) {
    const double height = chart.rows.size() <= 12 ? 26 : 17, left = 150, right = 880, top = 4;
    const double bottom = top + height * static_cast<double>(chart.rows.size()) + 4;
    double longest = 0;
    for (const BarRow& row : chart.rows) longest = std::max(longest, sum_of(row));
    const Axis axis = tight_axis(0, longest, 8, left, right);
    std::string svg = open_svg(page_width, bottom + 44, id, chart.title, chart.description);
    for (const double tick : axis.ticks)
        svg += svg_line(axis.at(tick), top, axis.at(tick), bottom, "grid") +
               svg_text(axis.at(tick), bottom + 16, Anchor::middle, "tick", tick_text(axis, tick));
    for (std::size_t r = 0; r < chart.rows.size(); ++r) {
        const BarRow& row = chart.rows[r];
        const double y = top + height * static_cast<double>(r) + 2;
        svg += svg_text(left - 10, y + height / 2 + 2, Anchor::end, "label", row.label);
        double sum = 0;
        for (std::size_t i = 0; i < row.values.size(); ++i) {
            if (!(row.values[i] > 0) || !std::isfinite(row.values[i])) continue;
            const double x = axis.at(sum);
            sum += row.values[i];
            svg += part_svg(chart.parts[i], x, axis.at(sum) - x, y, height - 5);
        }
        svg +=
            svg_text(axis.at(sum) + 8, y + height / 2 + 2, Anchor::start, "tick", row.note) + "\n";
    }
    return svg + svg_text((left + right) / 2, bottom + 36, Anchor::middle, "label", chart.axis) +
           "</svg>\n";
}

std::string heat_chart(const HeatMap& heat,
                       std::span<const std::string> hosts,
                       const std::string& id) {
    const double height = std::clamp(360.0 / static_cast<double>(heat.rows.size()), 8.0, 26.0);
    const double bottom = heat_plot.top + height * static_cast<double>(heat.rows.size());
    std::string svg =
        open_svg(page_width,
                 bottom + 26,
                 id,
                 "own time of ranks over steps",
                 "Each row is a rank, each column some steps. The number at the right is the "
                 "row's mean: times the median of all ranks. The table below has these numbers.");
    for (std::size_t level = 0; level < heat_levels.size(); ++level)
        if (const std::string path = level_path(heat, level, height); !path.empty())
            svg += fmt::format(
                "<path class=\"h{}\" d=\"{}\"><title>{} times the median</title></path>\n",
                level,
                path,
                heat_levels[level].name);
    const auto every = static_cast<std::size_t>(std::ceil(14 / height));
    for (std::size_t r = 0; r < heat.rows.size(); r += every) {
        const HeatRow& row = heat.rows[r];
        const double y = heat_plot.top + height * (static_cast<double>(r) + 0.5) + 4;
        svg += svg_text(heat_plot.left - 10,
                        y,
                        Anchor::end,
                        "label",
                        ranks_label(row.first, row.last) +
                            (r < hosts.size() && !hosts[r].empty() ? " · " + hosts[r] : ""));
        if (std::isfinite(row.mean))
            svg += svg_text(
                heat_plot.right + 12, y, Anchor::start, "tick", fmt::format("{:.2f} ×", row.mean));
    }
    return svg + heat_axis(heat, bottom) + "</svg>\n";
}

double Axis::at(double value) const {
    const bool is_log = scale == AxisScale::logarithmic;
    const auto length = [&](double v) { return is_log ? std::log(std::max(v, least)) : v; };
    const double range = length(most) - length(least);
    const double share = range > 0 ? (length(finite(value)) - length(least)) / range : 0;
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
}

Axis tight_axis(double least, double most, int ticks, double from, double to) {
    Axis axis{.least = finite(least), .most = finite(most), .from = from, .to = to};
    if (axis.most <= axis.least) axis.most = axis.least + 1;
    add_ticks(axis, tick_step(axis.least, axis.most, ticks));
    return axis;
}

Axis linear_axis(double least, double most, int ticks) {
    least = finite(least);
    most = finite(most);
    if (most <= least) {
        const double room = std::max(std::abs(least) * 0.05, 1e-9);
        least -= room;
        most += room;
    }
    const double step = tick_step(least, most, ticks);
    Axis axis{.least = std::floor(least / step + 1e-9) * step,
              .most = std::ceil(most / step - 1e-9) * step};
    add_ticks(axis, step);
    return axis;
}

Axis logarithmic_axis(double least, double most) {
    Axis axis{
        .scale = AxisScale::logarithmic, .least = least, .most = std::max(most, least * 1.01)};
    constexpr double most_decades = 8;  // with a tick each
    const bool is_wide = most / least > 2000;
    const double from = std::floor(std::log10(least)), to = std::log10(most);
    const double every = std::max(std::ceil((to - from) / most_decades), 1.0);
    for (double decade = from; decade <= to; decade += every)
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double tick = factor * std::pow(10, decade);
            if (is_wide && factor > 1) continue;
            if (tick >= least && tick <= most) axis.ticks.push_back(tick);
        }
    return axis;
}

std::string tick_text(const Axis& axis, double tick) {
    const double size = std::max(std::abs(axis.least), std::abs(axis.most));
    if (size < 1e-3) return fmt::format("{:.3g}", tick);
    const bool is_whole = digits_of(axis, tick) == 0;
    if (is_whole && size >= 1e15) return fmt::format("{:.3g}", tick);
    for (const auto& [unit, letter] :
         {std::pair(1e9, 'G'), std::pair(1e6, 'M'), std::pair(1e4, 'k')})
        if (is_whole && size >= unit) {
            const double divisor = letter == 'k' ? 1e3 : unit;
            return tick == 0 ? "0" : fmt::format("{:.4g}{}", tick / divisor, letter);
        }
    if (is_whole && tick >= 0) return grouped(static_cast<std::uint64_t>(std::llround(tick)));
    return fmt::format("{:.{}f}", tick, digits_of(axis, tick));
}

}  // namespace lockstep
