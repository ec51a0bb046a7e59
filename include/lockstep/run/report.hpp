// SPDX-License-Identifier: Apache-2.0
/// @file
/// The report of a run, on one page. It is made once from the run's directory and shown as text,
/// JSON, Markdown or HTML.
#pragma once

#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/stragglers.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Settings with changed values: {"io-threads", "4"}.
using ChangedSettings = std::vector<std::pair<std::string, std::string>>;

/// Facts about a run from other modules: this one reads no flight records and no settings.
struct ReportClues {
    RunStatus status{};
    std::int64_t start = 0;            ///< the start whose end `cause` explains; 0: none has begun
    std::optional<RootCause> cause{};  ///< nothing: there is no failure, or its cause is unknown
    std::string next{};                ///< the command to type next
    std::string resume{};              ///< the command that resumes the run; "": none can

    /// Returns the command that made the run, with some settings changed; "" if it is unknown.
    std::function<std::string(const ChangedSettings&)> train_line{};
};

/// A setting, a version or a size, by name.
struct ReportFact {
    std::string name, value;
};

/// The places of the ranks: a table from rank 0's log.
struct PlacementTable {
    std::vector<std::vector<std::string>> rows;  ///< the heading and the ranks; none: no table
    std::vector<std::string> notes;              ///< lines above and below it
};

/// One or more neighbouring values of a curve.
struct ReportPoint {
    std::int64_t step = 0;       ///< the newest of their steps
    double value = 0;            ///< their mean
    double least = 0, most = 0;  ///< their range
};

/// The source of a curve's values.
enum class CurveSource {
    reports,      ///< reports of training steps
    evaluations,  ///< evaluations of test data
};

/// One line of a chart, by step, with at most ReportLimits::points points. Values that are not
/// finite are left out.
struct ReportCurve {
    CurveSource source = CurveSource::reports;
    std::string name;
    std::vector<ReportPoint> points;
    double last = 0, best_low = 0, best_high = 0;  ///< values over all steps
    std::int64_t low_step = 0, high_step = 0;      ///< steps of these two
};

/// The content of a chart.
enum class ChartKind {
    loss,           ///< loss of training and tests
    figure,         ///< another metric of tests
    learning_rate,  ///< only if it changes
    speed,          ///< samples per second
};

/// Curves with one axis.
struct ReportChart {
    ChartKind kind = ChartKind::loss;
    std::string title;
    std::vector<ReportCurve> curves;  ///< none is empty
};

/// A rank of the start that is reported, or neighbouring ranks in one row.
struct ReportRank {
    int first = 0, last = 0;
    std::string hosts{};   ///< "n1", "n1 ... n4"
    MeanStep mean{};       ///< average of the steps that were kept
    std::string damage{};  ///< of one rank: why its steps could not be read; "": they could
};

/// A row of the heat map: ranks `first` to `last`.
struct HeatRow {
    int first = 0, last = 0;
    std::vector<double> ratio;  ///< by column; NaN: unknown
    double mean = 0;            ///< mean of the whole row; NaN: unknown
};

/// The time of a rank's steps without waiting for others, divided by the median over all ranks in
/// the same steps. For an even number it is the lower median; with one rank the median over all
/// columns. A row of several ranks has the largest value.
struct HeatMap {
    std::vector<std::int64_t> first_step;  ///< first step of each column
    std::int64_t last_step = 0;            ///< last step of the last column
    std::vector<HeatRow> rows;
};

/// The importance of a finding.
enum class FindingWeight { note, warning, problem };
std::string_view finding_weight_name(FindingWeight weight);  ///< the enumerator's name

/// An observation, and what to try.
struct ReportFinding {
    std::string_view kind{};  ///< its subject, as in JSON
    FindingWeight weight = FindingWeight::note;
    std::string title;      ///< one sentence, with the number
    std::string advice;     ///< what to try, or what it means
    std::string command{};  ///< command to type; "" if there is none
};

/// The size of a report, which does not depend on the length of the run.
struct ReportLimits {
    static constexpr std::size_t points = 400;   ///< points of a curve
    static constexpr std::size_t columns = 120;  ///< heat map
    static constexpr std::size_t rows = 64;      ///< heat map
};

/// The content of a report.
struct Report {
    ReportClues clues;                ///< status, cause, commands
    std::int64_t incarnation = 0;     ///< the start of the ranks and steps; 0: none
    std::string outcome;              ///< one sentence
    std::vector<ReportFact> facts;    ///< facts about the run
    PlacementTable placement;         ///< empty if the log has none
    std::int64_t batch = 0;           ///< samples of a step; 0: unknown
    std::vector<ReportChart> charts;  ///< curves over all starts
    MeanStep mean;                    ///< over all ranks
    std::vector<ReportRank> ranks;
    HeatMap heat;
    std::vector<Straggler> stragglers;    ///< the worst first
    std::vector<ReportFinding> findings;  ///< the most important first; never empty

    std::string run() const { return clues.status.root.string(); }  ///< directory of the run
};

/// Makes the report of a run. Reads rank 0's log for the placement, and no other file.
Report make_report(const RunFigures& run, ReportClues clues);

/// Returns text for a terminal of at least 80 columns, without escapes.
std::string report_text(const Report& report);

/// Returns JSON for programs.
Json report_json(const Report& report);

/// Returns Markdown for wikis and pull requests (GitHub's dialect).
std::string report_markdown(const Report& report);

/// Returns one HTML file that needs no network and runs no script, for light and dark screens and
/// for paper.
std::string report_html(const Report& report);

}  // namespace lockstep
