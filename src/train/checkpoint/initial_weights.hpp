// SPDX-License-Identifier: Apache-2.0
// Weights that a new run begins with instead of random ones: --load-weights and --load-skip.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/settings.hpp"

#include "checkpoint/safetensors_file.hpp"

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

/// The file's tensors for the model's `wanted`, but those that --load-skip names. Names in `known`
/// may be in the file, too. Errors: E304 naming all that are missing, unexpected or of other
/// shapes.
std::vector<MatchedWeights> match_weights(const SafetensorsFile& file,
                                          std::span<const TensorMeta> wanted,
                                          std::span<const std::string> known,
                                          const std::string& skip);

}  // namespace lockstep
