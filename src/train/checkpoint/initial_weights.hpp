// SPDX-License-Identifier: Apache-2.0
// Weights that a new run begins with instead of random ones: --load-weights, --load-skip,
// --load-prefix.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/safetensors.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Where a run's first weights come from.
struct InitialWeights {
    std::string fact;            ///< what decides the bits, for run.json; "": the seed alone
    std::filesystem::path file;  ///< to be read now; "": a checkpoint or the seed has them
};

/// Collective. A run with a checkpoint needs the file no more: if it is there, its digest must be
/// the recorded one, which the caller compares. `recorded`: the settings in run.json, if there are.
/// Errors: E105, E201, E202, E605 (another file on some rank).
InitialWeights settle_initial_weights(const Communicator& ranks,
                                      const TrainSettings& settings,
                                      const Json& recorded);

/// A tensor of a model, and what it is in the file.
struct MatchedWeights {
    std::size_t tensor = 0;  ///< index into the model's
    const StoredTensor* stored = nullptr;
};

/// What is left out of a file, and what fits the model.
struct WeightsMatch {
    std::vector<MatchedWeights> tensors{};
    std::size_t skipped = 0;  ///< names of the model or the file that --load-skip leaves out
};

/// Who uses weights: `train --load-weights`, or `eval --weights`, which can skip none.
enum class WeightsFor { training, evaluation };

/// The file's tensors for the model's `wanted`, but those that `skip`, the value of --load-skip,
/// names. `prefix`, that of --load-prefix, is taken off names in the file first. Names in `known`
/// may be in the file, too. Errors: E107 a pattern that matches nothing, or all, or a prefix that
/// no name has; E304 naming all that are missing, unexpected or of other shapes.
WeightsMatch match_weights(const SafetensorsFile& file,
                           std::span<const TensorMeta> wanted,
                           std::span<const std::string> known,
                           const std::string& skip,
                           WeightsFor use,
                           const std::string& prefix = "");

}  // namespace lockstep
