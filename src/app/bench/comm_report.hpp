// SPDX-License-Identifier: Apache-2.0
// The results of `lockstep bench comm`, as text for people and as JSON.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The ranks that reduce together.
enum class RankSplit { all, intra, inter };
std::string_view split_name(RankSplit split);  ///< the enumerator's name

/// The data of all outputs.
struct CommReport {
    MeasurePlan plan;
    std::vector<RankSeat> seats;  ///< by rank of the whole launch
    std::string cpu_model;
    RankSplit split = RankSplit::all;
    int ranks = 1;  ///< ranks of one group
    int nodes = 1;
    Measurements measured;
};

/// Returns the text before measuring: machine, ranks, versions, plan. Lines begin with "# ".
std::string header_text(const CommReport& report);

/// Returns nccl-tests' columns, a block for each method; ratios; limit.
std::string tables_text(const CommReport& report);

/// Returns one sentence: whether sums are exact, which method is fastest at which sizes, and the
/// comparison with Open MPI.
std::string verdict_text(const CommReport& report);

/// Returns the same for programs.
Json report_json(const CommReport& report);

/// Judges the results. Errors: E651 for wrong sums, E652 if Lockstep's best bus bandwidth is below
/// `min_gb_per_s`.
void judge(const CommReport& report, double min_gb_per_s);

}  // namespace lockstep
