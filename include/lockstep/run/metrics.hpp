// SPDX-License-Identifier: Apache-2.0
/// @file
/// metrics.jsonl of a run: its lines, and their export for other programs.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/run_figures.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Appends lines. Rank 0 only.
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
