// SPDX-License-Identifier: Apache-2.0
// The output of `lockstep scale`: the table, the losses, the forecast, the advice.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/comparison.hpp"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The device of ranks, which decides their cost.
enum class ScaleUnit { core, gpu, rank };

/// Further facts of a run, besides its point.
struct ScaleRun {
    std::string place;                    ///< its folder
    std::optional<double> accuracy{};     ///< newest evaluation's accuracy, or its loss
    std::optional<double> epoch_steps{};  ///< steps of an epoch
};

struct ScaleReport {
    bool is_given = false;  ///< times are from --times, measured by the user; else steps of runs
    ScaleUnit unit = ScaleUnit::rank;
    std::vector<ScaleRow> rows;
    std::map<int, ScaleRun> runs{};  ///< by ranks
    std::vector<ScaleForecast> forecasts{};
    ScaleModel model{};
    ScaleAdvice advice{};
    double least_efficiency = 0;
    /// Number of ranks with cores in forecasts; more ranks get none.
    double room = std::numeric_limits<double>::infinity();
    int threads = 1;         ///< threads of each rank
    std::string figure{};    ///< name of ScaleRun::accuracy
    double batch = 0;        ///< samples of a step; 0: unknown
    double steps_total = 0;  ///< steps of a training; 0: unknown
    std::vector<std::string> notes{};
};

/// Returns the verdict in one sentence, then the tables.
std::string scale_text(const ScaleReport& report);

/// Returns the same for programs.
Json scale_json(const ScaleReport& report);

}  // namespace lockstep
