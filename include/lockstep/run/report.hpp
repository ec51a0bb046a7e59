// SPDX-License-Identifier: Apache-2.0
/// @file
/// The report of a run, on one page: made once from its directory, shown as text, JSON, Markdown or
/// HTML.
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

/// Why a start failed, as `lockstep logs --first-error` says it.
struct ReportCause {
    RankError error{};             ///< ranks, node, code, what, why and fix
    std::string trouble{};         ///< "rank dead", ... if flight records show it, else ""
    std::vector<int> followers{};  ///< ranks that ended for it
};

/// Settings in other values: {"io-threads", "4"}.
using ChangedSettings = std::vector<std::pair<std::string, std::string>>;

/// What others know about a run, for this module reads no flight records and knows no settings.
struct ReportClues {
    RunStatus status{};
    std::int64_t start = 0;              ///< the one whose end `cause` is; 0: none has begun
    std::optional<ReportCause> cause{};  ///< nothing if all is well, or if it is not known
    std::string next{};                  ///< the command to type next
    std::string resume{};                ///< the command that resumes the run; "": none does

    /// The command that made the run, with some settings changed; "" if that is not known.
    std::function<std::string(const ChangedSettings&)> train_line{};
};

/// A setting, a version, a size: by name.
struct ReportFact {
    std::string name, value;
};

/// Which rank ran where: rank 0's log has it as a table.
struct PlacementTable {
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;  ///< as many cells as columns
    std::vector<std::string> notes;              ///< lines above and below it
};

/// One or more neighbouring values of a curve.
struct ReportPoint {
    std::int64_t step = 0;       ///< the newest of them
    double value = 0;            ///< their mean
    double least = 0, most = 0;  ///< of them
};

/// What a curve is made of.
enum class CurveSource {
    reports,      ///< of training steps
    evaluations,  ///< of tests
};

/// One line of a chart, by step, at most ReportLimits::points long. Values that are not finite are
/// left out.
struct ReportCurve {
    CurveSource source = CurveSource::reports;
    std::string name;
    std::vector<ReportPoint> points;
    double last = 0, best_low = 0, best_high = 0;  ///< of all values
    std::int64_t low_step = 0, high_step = 0;      ///< where these two are
};

/// What a chart shows.
enum class ChartKind {
    loss,           ///< of training and tests
    figure,         ///< another one of tests
    learning_rate,  ///< where it changes
    speed,          ///< samples per second
};

/// Curves with one axis.
struct ReportChart {
    ChartKind kind = ChartKind::loss;
    std::string title;
    std::vector<ReportCurve> curves;  ///< none is empty
};

/// A rank of the start that is looked at.
struct ReportRank {
    int rank = 0;
    std::string host{};
    MeanStep mean{};       ///< of the steps that it kept
    std::string damage{};  ///< why its steps could not be read; "": they could
};

/// A row of the heat map: ranks `first` to `last`.
struct HeatRow {
    int first = 0, last = 0;
    std::vector<double> ratio;  ///< by column; NaN: nothing is known
    double mean = 0;            ///< of the whole row; NaN: nothing is known
};

/// What a rank's steps took without waiting for others, divided by the median over all ranks in the
/// same steps (of an even number the lower of both; with one rank: over all columns). Of several
/// ranks in a row the largest.
struct HeatMap {
    std::vector<std::int64_t> first_step;  ///< of each column
    std::int64_t last_step = 0;            ///< of the last column
    std::vector<HeatRow> rows;
};

/// What a finding is about.
enum class FindingKind {
    failure,
    straggler,
    uneven_leaves,
    waiting,
    data_bound,
    communication,
    other_time,
    saving,
    evaluating,
    slow_start,
    first_step,
    repeated_steps,
    restarts,
    loss_not_finite,
    skipped_steps,
    overfitting,
    masked_samples,
    read_retries,
    no_steps,
    damaged_steps,
    all_well,
    count,
};
std::string_view finding_name(FindingKind kind);  ///< the enumerator's word, as in JSON

/// How much a finding matters.
enum class FindingWeight { note, warning, problem };
std::string_view finding_weight_name(FindingWeight weight);  ///< the enumerator's word

/// Something worth knowing, and what to try.
struct ReportFinding {
    FindingKind kind = FindingKind::all_well;
    FindingWeight weight = FindingWeight::note;
    std::string title;      ///< one sentence, with the number
    std::string advice;     ///< what to try, or what it means
    std::string command{};  ///< to type; "" if there is none
};

/// How much of a run a report holds, however long it was.
struct ReportLimits {
    static constexpr std::size_t points = 400;   ///< of a curve
    static constexpr std::size_t columns = 120;  ///< of the heat map
    static constexpr std::size_t rows = 64;      ///< of the heat map
};

/// All that a report shows.
struct Report {
    ReportClues clues;                ///< status, cause, commands
    std::int64_t incarnation = 0;     ///< the start that ranks and steps are of; 0: none
    std::string outcome;              ///< one sentence
    std::vector<ReportFact> facts;    ///< what ran
    PlacementTable placement;         ///< empty if the log has none
    std::int64_t batch = 0;           ///< samples of a step; 0: not known
    std::vector<ReportChart> charts;  ///< of all starts
    MeanStep mean;                    ///< over all ranks
    std::vector<ReportRank> ranks;
    HeatMap heat;
    std::vector<Straggler> stragglers;    ///< the worst first
    std::vector<ReportFinding> findings;  ///< what matters most first; never empty

    std::string run() const { return clues.status.root.string(); }  ///< its directory
};

/// The report of a run. Reads rank 0's log for the placement, and nothing else.
Report make_report(const RunFigures& run, ReportClues clues);

/// For a terminal of at least 80 columns; no escapes.
std::string report_text(const Report& report);

/// For programs.
Json report_json(const Report& report);

/// For wikis and pull requests (GitHub's dialect).
std::string report_markdown(const Report& report);

/// One file that needs no network and runs no script, for light and dark screens and for paper.
std::string report_html(const Report& report);

}  // namespace lockstep
