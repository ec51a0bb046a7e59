// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "report/html_parts.hpp"
#include "report/svg_charts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace lockstep {
namespace {

double finite(double value) {
    return std::isfinite(value) ? value : 0;
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

std::string svg_number(double value) {
    std::string text = fmt::format("{:.1f}", finite(value));
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text == "-0" ? "0" : text;
}

}  // namespace lockstep
