// SPDX-License-Identifier: Apache-2.0
// Axes of the HTML report's charts: round ticks, and where values lie.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

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
