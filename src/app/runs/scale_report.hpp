// SPDX-License-Identifier: Apache-2.0
// What `lockstep scale` says: the table, where the losses are, the forecast, the advice.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/scaling.hpp"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What the times are of.
enum class ScaleTime {
    step,   ///< of runs
    given,  ///< --times: of whatever the user timed
};

/// What ranks compute on, and so what they cost.
enum class ScaleUnit { core, gpu, rank };

/// What else is known of a run, beside its point.
struct ScaleRun {
    std::string place;                    ///< its folder
    std::optional<double> accuracy{};     ///< the newest evaluation's, or its loss
    std::optional<double> epoch_steps{};  ///< steps of an epoch
};

/// All that is told.
struct ScaleReport {
    ScaleTime time = ScaleTime::step;
    ScaleUnit unit = ScaleUnit::rank;
    std::vector<ScaleRow> rows;
    std::map<int, ScaleRun> runs{};  ///< by ranks
    std::vector<ScaleForecast> forecasts{};
    ScaleModel model{};
    ScaleAdvice advice{};
    double least_efficiency = 0;
    /// How many ranks the forecasts have cores for; more of them get none.
    double room = std::numeric_limits<double>::infinity();
    int threads = 1;         ///< of each rank
    std::string figure{};    ///< that ScaleRun::accuracy is
    double batch = 0;        ///< samples of a step; 0: not known
    double steps_total = 0;  ///< of a training; 0: not known
    std::vector<std::string> notes{};
};

/// The verdict in one sentence, then the tables.
std::string scale_text(const ScaleReport& report);

/// The same for programs.
Json scale_json(const ScaleReport& report);

}  // namespace lockstep
