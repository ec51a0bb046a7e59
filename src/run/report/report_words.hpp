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

/// A part of a bar: what text shows as a letter and a chart in a colour, too.
struct PartWord {
    char letter;
    std::string_view name, css;  // of the class that colours it
};

/// A step's phases in the order in which they are shown.
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

/// Those of `phase_order` in which any rank spent time.
std::vector<Phase> shown_phases(const Report& report);

/// A part of the run's time.
struct TimePart {
    PartWord word;
    double seconds;
};

/// Where the time since the first start went; they sum to RunTimes::elapsed, but for what is too
/// short to show.
std::vector<TimePart> time_parts(const RunTimes& times);

/// "23 %", "0.4 %", "-" of nothing.
std::string share_of(double part, double whole);

/// Of a step: "0.42 ms", "12.3 ms", "1.24 s".
std::string step_length_text(double seconds);

/// Four digits: "0.4183", "98.37", "12,345".
std::string figure_text(double value);

/// "12,345"; 0 of a negative number.
std::string count_words(std::int64_t count);

/// "3", "0-3".
std::string ranks_label(int first, int last);

/// Neighbouring ranks in one row: the means of their steps, and their nodes.
struct ReportRow {
    int first = 0, last = 0;
    std::string hosts;
    MeanStep mean;
};

/// The ranks in at most `most` rows.
std::vector<ReportRow> rank_rows(std::span<const ReportRank> ranks, std::size_t most);

/// The mean steps of the ranks in at most `most` rows, below a row of heads: ranks, node, the step,
/// and the share of each phase.
std::vector<std::vector<std::string>> budget_rows(const Report& report, std::size_t most);

/// "rank 1 on n1: rank dead", "ranks 0-3 on n2: error E213".
std::string cause_title(const ReportCause& cause);

/// What is known of a cause: "where", "what", "why", "fix", "when", "consequence".
std::vector<ReportFact> cause_facts(const ReportCause& cause);

/// The newest step that was reported: state.json may know an older one of a start that failed.
std::int64_t reached_step(const RunStatus& status);

/// "steps 938 to 1,200".
std::string start_steps(const StartRecord& start);

/// How long it took: "12m08s".
std::string start_length(const StartRecord& start);

/// Whether the newest start ended badly or is in trouble; whether it did what it should.
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
