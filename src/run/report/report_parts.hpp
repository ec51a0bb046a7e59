// SPDX-License-Identifier: Apache-2.0
// The parts that a report is made of, each from what it needs.
#pragma once

#include "lockstep/run/report.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The charts of a run: loss, each figure of its tests, learning rate, speed.
std::vector<ReportChart> report_charts(const RunFigures& run);

/// A row for each rank, or for neighbours; no rows where no rank kept steps.
HeatMap heat_map(std::span<const RankFigures> ranks);

/// The table of ranks in a rank's log; no columns where there is none, or no log.
PlacementTable read_placement(const fs::path& log);

/// What is worth knowing of `report`, whose other parts are done.
std::vector<ReportFinding> report_findings(const RunFigures& run, const Report& report);

/// A setting as run.json has it: what decided, or what was given; "" where it has neither.
std::string setting_of(const RunRecord& record, std::string_view name);

}  // namespace lockstep
