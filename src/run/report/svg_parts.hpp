// SPDX-License-Identifier: Apache-2.0
// Elements of SVG. Places are in units of the drawing's viewBox, which is as wide as the page has
// pixels for it; all texts are escaped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Part of a drawing.
struct Box {
    double left, top, right, bottom;
};

/// Which end of a text is at its place.
enum class Anchor { start, middle, end };

/// Begins a drawing that screen readers call `title`. `id`: unique in the page.
std::string open_svg(double width,
                     double height,
                     const std::string& id,
                     const std::string& title,
                     const std::string& description);

std::string svg_text(
    double x, double y, Anchor anchor, std::string_view css, const std::string& text);
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view css);
std::string svg_rectangle(double x, double y, double width, double height, std::string_view css);

/// How values lie along an axis.
enum class AxisScale { linear, logarithmic };

/// From values to places in a drawing.
struct Axis {
    AxisScale scale = AxisScale::linear;
    double least = 0, most = 1;  ///< values at both ends
    double from = 0, to = 1;     ///< places of these
    std::vector<double> ticks;   ///< values between them, round ones

    double at(double value) const;  ///< its place; never outside of the axis
};

/// Of values from `least` to `most`: ends and ticks are 1, 2 or 5 times a power of ten apart, about
/// `ticks` of them. Values that are not finite count as 0.
Axis linear_axis(double least, double most, int ticks);

/// The same for the ends as they are: ticks lie between them.
Axis tight_axis(double least, double most, int ticks);

/// Positive values; ticks are 1, 2 or 5 times a power of ten.
Axis logarithmic_axis(double least, double most);

/// Ticks in words that are as exact as these ticks need: "0.25", "1,500", "20k", "3M".
std::string tick_text(const Axis& axis, double tick);

/// A place, to a tenth: "12.3", "12".
std::string svg_number(double value);

}  // namespace lockstep
