// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's figures for other programs: tables, Prometheus, lines of JSON.
#pragma once

#include "lockstep/run/run_figures.hpp"

#include <string>

namespace lockstep {

/// RFC 4180, lines ended by "\n": a row for each report and each evaluation, by step; a column for
/// each figure that any of them has ("kind" and "step" first, "phases.comm" for what is within
/// another), empty if a row lacks it.
std::string metrics_csv(const RunFigures& run);

/// The same rows, each a JSON object in a line, as metrics.jsonl has them, with "kind".
std::string metrics_jsonl(const RunFigures& run);

/// The newest figures in Prometheus' text format, for node_exporter's textfile collector: gauges
/// with the labels `run` (its folder, as given), and `rank` and `host` where each rank has its own
/// (the mean of the steps that it kept).
/// https://prometheus.io/docs/instrumenting/exposition_formats/
std::string metrics_prometheus(const RunFigures& run);

}  // namespace lockstep
