// SPDX-License-Identifier: Apache-2.0
// The parts that a report is made of, and the words and numbers that all its forms share. Last come
// the HTML report's drawings: inline SVG whose colours are classes of its style sheet. Places are
// in units of the drawing's viewBox, which is as wide as the page has pixels for it; all texts are
// escaped.
#pragma once

#include "lockstep/run/report.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A part of a bar, shown as a letter in text and as a colour in a chart.
struct PartWord {
    char letter;
    std::string_view name, css;  // css: class with its colour
};

/// A step's phases in the order of display.
inline constexpr std::array phase_order{Phase::forward,
                                        Phase::backward,
                                        Phase::update,
                                        Phase::data,
                                        Phase::copy,
                                        Phase::comm,
                                        Phase::wait,
                                        Phase::checkpoint,
                                        Phase::evaluate,
                                        Phase::other};
static_assert(phase_order.size() == static_cast<std::size_t>(Phase::count));
const PartWord& phase_word(Phase phase);

/// Returns the phases of `phase_order` in which any rank spent time.
std::vector<Phase> shown_phases(const Report& report);

/// A part of the run's time.
struct TimePart {
    PartWord word;
    double seconds;
};

/// Returns the use of the time since the first start. The parts sum to RunTimes::elapsed, except
/// for those too short to show.
std::vector<TimePart> time_parts(const RunTimes& times);

/// Returns "23 %", "0.4 %"; "-" for nothing.
std::string share_of(double part, double whole);

/// Returns the time of a step: "0.42 ms", "12.3 ms", "1.24 s".
std::string step_length_text(double seconds);

/// Returns four digits: "0.4183", "98.37", "12,345".
std::string figure_text(double value);

/// Returns "12,345"; 0 for a negative number.
std::string count_words(std::int64_t count);

/// Returns "3", "0-3".
std::string ranks_label(int first, int last);

/// Returns the ranks in at most `most` rows.
std::vector<ReportRank> rank_rows(std::span<const ReportRank> ranks, std::size_t most);

/// Returns the mean steps of the ranks in at most `most` rows, below a row of heads: ranks, node,
/// the step, and the share of each phase.
std::vector<std::vector<std::string>> budget_rows(const Report& report, std::size_t most);

/// Returns the command that measures the sums of the run's ranks on its nodes: --np would measure
/// the shared memory of one.
std::string bench_command(const RunFigures& run);

/// Returns the facts of a cause: "where", "what", "why", "fix", "when", "consequence".
std::vector<ReportFact> cause_facts(const RootCause& cause);

/// Returns the newest reported step: for a start that failed state.json may have an older one.
std::int64_t reached_step(const RunStatus& status);

/// Returns "steps 938 to 1,200".
std::string start_steps(const StartRecord& start);

/// Returns its duration: "12m08s".
std::string start_length(const StartRecord& start);

/// The state of the newest start: successful, unfinished, or with a failure or problem.
enum class ReportMood { good, open, bad };
ReportMood mood_of(RunCondition condition);

/// Returns the charts of a run: loss, each metric of its tests, learning rate, speed.
std::vector<ReportChart> report_charts(const RunFigures& run);

/// Returns a row for each rank, or for neighbours; no rows if no rank kept steps.
HeatMap heat_map(std::span<const RankFigures> ranks);

/// Returns the table of ranks in a rank's log; no columns if there is none, or no log.
PlacementTable read_placement(const fs::path& log);

/// Returns the findings on `report`, whose other parts are done.
std::vector<ReportFinding> report_findings(const RunFigures& run, const Report& report);

/// Returns a setting of run.json: from the deciding ones, or as given; "" if it has neither.
std::string setting_of(const RunRecord& record, std::string_view name);

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
