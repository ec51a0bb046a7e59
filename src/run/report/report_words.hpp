// SPDX-License-Identifier: Apache-2.0
// The parts that a report is made of, and the words and numbers that all its forms share.
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

/// Neighbouring ranks in one row: the means of their steps, and their nodes.
struct ReportRow {
    int first = 0, last = 0;
    std::string hosts;
    MeanStep mean;
};

/// Returns the ranks in at most `most` rows.
std::vector<ReportRow> rank_rows(std::span<const ReportRank> ranks, std::size_t most);

/// Returns the mean steps of the ranks in at most `most` rows, below a row of heads: ranks, node,
/// the step, and the share of each phase.
std::vector<std::vector<std::string>> budget_rows(const Report& report, std::size_t most);

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

}  // namespace lockstep
