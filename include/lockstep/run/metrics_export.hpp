// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's metrics for other programs: tables, Prometheus, lines of JSON.
#pragma once

#include "lockstep/run/run_figures.hpp"

#include <string>

namespace lockstep {

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
