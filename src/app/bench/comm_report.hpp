// SPDX-License-Identifier: Apache-2.0
// What `lockstep bench comm` found, as text for people and as JSON.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/json.hpp"

#include "bench/comm_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Everything the outputs are made from.
struct CommReport {
    MeasurePlan plan;
    std::vector<RankSeat> seats;  ///< by rank of the whole launch
    std::string cpu_model;
    RankSplit split = RankSplit::all;
    int ranks = 1;  ///< of one group
    int nodes = 1;
    Measurements measured;
};

/// Before measuring: machine, ranks, versions, what is done. Lines begin with "# ".
std::string header_text(const CommReport& report);

/// nccl-tests' columns, a block for each method; ratios; limit.
std::string tables_text(const CommReport& report);

/// One sentence: whether sums are exact, what is fastest where, and how Lockstep compares to Open
/// MPI.
std::string verdict_text(const CommReport& report);

/// The same for programs.
Json report_json(const CommReport& report);

/// Throws E651 for wrong sums, E652 if Lockstep's best bus bandwidth is below `min_gb_per_s`.
void judge(const CommReport& report, double min_gb_per_s);

/// By how much `row` beats Open MPI at the same size; nothing if that was not measured.
std::optional<double> ratio_to_open_mpi(const Measurements& measured, const Measurement& row);

/// Open MPI's name and version without its build.
std::string mpi_version();

}  // namespace lockstep
