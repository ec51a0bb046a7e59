// SPDX-License-Identifier: Apache-2.0
// The HTML report's drawings: inline SVG whose colours are classes of its style sheet. Places are
// in units of the drawing's viewBox, which is as wide as the page has pixels for it; all texts are
// escaped.
#pragma once

#include "report/report_words.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns `text` for use between tags or quotes of HTML; control characters become '?'.
std::string html_text(std::string_view text);

/// Draws curves against updates (below) and samples (above), with the range of values that one
/// point represents. `id`: unique in the page. `batch` 0: no axis of samples.
std::string line_chart(const ReportChart& chart, std::int64_t batch, const std::string& id);

/// A bar of several parts.
struct BarRow {
    std::string label, note;     ///< texts at its left and right end
    std::vector<double> values;  ///< one for each part
};

/// Bars beside one axis.
struct BarChart {
    std::string title, description;  ///< for screen readers
    std::string axis;                ///< quantity and unit
    std::vector<PartWord> parts;
    std::vector<BarRow> rows;
};
std::string stacked_bars(const BarChart& chart, const std::string& id);

struct HeatLevel {
    double below;  ///< ratios below it, and not below the previous level
    std::string_view name;
};
inline constexpr std::array<HeatLevel, 7> heat_levels{{{0.9, "below 0.9"},
                                                       {1.1, "0.9 to 1.1"},
                                                       {1.25, "1.1 to 1.25"},
                                                       {1.5, "1.25 to 1.5"},
                                                       {2, "1.5 to 2"},
                                                       {4, "2 to 4"},
                                                       {1e300, "4 and more"}}};

/// Draws ranks over steps. `hosts`: for each row, or "".
std::string heat_chart(const HeatMap& heat,
                       std::span<const std::string> hosts,
                       const std::string& id);

enum class AxisScale { linear, logarithmic };

/// Maps values to positions in a drawing.
struct Axis {
    AxisScale scale = AxisScale::linear;
    double least = 0, most = 1;  ///< values at both ends
    double from = 0, to = 1;     ///< positions of these
    std::vector<double> ticks;   ///< round values between them

    double at(double value) const;  ///< position of a value, never outside of the axis
};

/// Makes an axis from `least` to `most`: ends and ticks are 1, 2 or 5 times a power of ten apart,
/// about `ticks` of them. Values that are not finite count as 0.
Axis linear_axis(double least, double most, int ticks);

/// Does the same with the given ends, placed at `from` and `to`; ticks are between them.
Axis tight_axis(double least, double most, int ticks, double from = 0, double to = 1);

/// Makes an axis of positive values; ticks are 1, 2 or 5 times a power of ten.
Axis logarithmic_axis(double least, double most);

/// Returns the text of a tick with the digits that these ticks need: "0.25", "1,500", "20k", "3M".
std::string tick_text(const Axis& axis, double tick);

}  // namespace lockstep
