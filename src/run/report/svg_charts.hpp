// SPDX-License-Identifier: Apache-2.0
// The HTML report's drawings: inline SVG whose colours are classes of report_style().
#pragma once

#include "report/report_words.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

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

/// A level of the heat map.
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

}  // namespace lockstep
