// SPDX-License-Identifier: Apache-2.0
// Functions that make the parts of a report.
#pragma once

#include "lockstep/run/report.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

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
