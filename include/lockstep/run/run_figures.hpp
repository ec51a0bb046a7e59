// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's speed and curves: its metrics.jsonl as it is written, all figures as they are read from
/// its files for `report`, `compare` and `scale`, and their export for other programs.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// metrics.jsonl of a run, to which lines are appended. Rank 0 only.
class MetricsFile {
  public:
    /// Opens or creates `path` (0600) and removes lines after `resumed_step`: an incomplete last
    /// line, and lines at the end whose "step" is larger. Errors: E402.
    MetricsFile(const fs::path& path, std::int64_t resumed_step);

    /// Appends one line in one write. `record` has a "step". Errors: E402, E405.
    void append(const Json& record);

  private:
    fs::path path_;
    UniqueFd file_;
};

/// One rank of one start.
struct RankFigures {
    RankLogFacts facts{};               ///< its number, node and clock
    std::vector<StepBudget> steps{};    ///< the newest that it has kept, by its own clock
    std::string damage{};               ///< the reason why they could not be read; "": they could
    std::optional<PlaceEvent> place{};  ///< its cores; nothing in logs of earlier versions
    std::vector<LinkTimes> links{};     ///< StartSums::links
    std::string data_bound{};           ///< what_bound() of its newest reports
};

/// The data of one run, with details of one start.
struct RunFigures {
    fs::path root;
    RunRecord record;                 ///< settings with their origins, contract, versions
    std::int64_t incarnation = 0;     ///< the start of `ranks`; 0: none has logs
    std::vector<RankFigures> ranks;   ///< by rank
    std::vector<StepsEvent> reports;  ///< metrics.jsonl, each step once, of all starts
    std::vector<EvaluationMetrics> evaluations;  ///< from metrics.jsonl, too
};

/// Reads start `incarnation`; 0: the newest that has kept steps, else the newest. Errors: E201,
/// E222 of run.json.
RunFigures read_run_figures(const fs::path& root, std::int64_t incarnation = 0);

/// Reads the same without the growing metrics.jsonl: `reports` and `evaluations` are empty.
RunFigures read_rank_figures(const fs::path& root, std::int64_t incarnation = 0);

/// Returns the stage that batches waited for longest, as DataReport::bound; "" if none.
std::string what_bound(std::span<const StepsEvent> reports);

/// The average times of steps. The first step of a start, which warms up caches, is left out if
/// there are others.
struct MeanStep {
    std::int64_t steps = 0;  ///< number of averaged steps; 0: unknown
    PhaseSeconds phases{};   ///< times of one step; they sum to its wall time
    double wall_s() const { return phases.sum(); }  ///< of one step
};

/// Returns the mean of one rank's steps.
MeanStep mean_step(const RankFigures& rank);

/// Returns the mean over all ranks. Each step counts once, because its wall time is the same on
/// every rank.
MeanStep mean_step(const RunFigures& run);

/// Returns CSV by RFC 4180, with lines ended by "\n": a row for each report and each evaluation, by
/// step, and a column for each metric that any of them has. "kind" and "step" come first;
/// "phases.comm" names a nested value. A cell is empty if the row lacks the metric.
std::string metrics_csv(const RunFigures& run);

/// Returns the same rows, each as one line of JSON as in metrics.jsonl, with "kind".
std::string metrics_jsonl(const RunFigures& run);

/// Returns the newest values in Prometheus' text format, for node_exporter's textfile collector.
/// They are gauges with the label `run` (its folder, as given). Values per rank (the mean of the
/// steps that it kept) also have `rank` and `host`.
/// https://prometheus.io/docs/instrumenting/exposition_formats/
std::string metrics_prometheus(const RunFigures& run);

}  // namespace lockstep
