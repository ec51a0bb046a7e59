// SPDX-License-Identifier: Apache-2.0
#include "report/svg_charts.hpp"
#include "report/svg_parts.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double page_width = 1000;

double row_height(std::size_t rows) {
    return rows <= 12 ? 26 : 17;
}

/// A part of a bar, with its letter where there is room.
std::string part_svg(const PartWord& part, double x, double width, double y, double height) {
    std::string svg =
        svg_rectangle(x, y, std::max(width - 1, 0.4), height, fmt::format("c-{}", part.css));
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
    Axis steps = tight_axis(
        static_cast<double>(heat.first_step.front()), static_cast<double>(heat.last_step) + 1, 8);
    steps.from = heat_plot.left;
    steps.to = heat_plot.right;
    std::string svg;
    for (const double tick : steps.ticks)
        svg +=
            svg_line(steps.at(tick), bottom, steps.at(tick), bottom + 4, "axis") +
            svg_text(steps.at(tick), bottom + 18, Anchor::middle, "tick", tick_text(steps, tick));
    return svg + svg_text(heat_plot.left - 10, bottom + 18, Anchor::end, "label", "updates") + "\n";
}

}  // namespace

std::string stacked_bars(const BarChart& chart, const std::string& id) {
    const double height = row_height(chart.rows.size());
    const double left = 150, right = 880, top = 4;
    const double bottom = top + height * static_cast<double>(chart.rows.size()) + 4;
    double longest = 0;
    for (const BarRow& row : chart.rows) longest = std::max(longest, sum_of(row));
    Axis axis = tight_axis(0, longest, 8);
    axis.from = left;
    axis.to = right;
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

}  // namespace lockstep
