// SPDX-License-Identifier: Apache-2.0
/// @file
/// A trained model with fewer channels: smaller and faster, and ready for more training.
#pragma once

#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Settings of prune_run().
struct PruneSettings {
    std::filesystem::path run;         ///< a run's folder, whose newest whole checkpoint is used
    std::filesystem::path weights;     ///< safetensors to use in its place; "": none
    std::filesystem::path train_data;  ///< where the run's training data are now; "": where then
    std::filesystem::path output;      ///< new safetensors
    double keep = 0.5;                 ///< share of each layer's channels that stay
};

/// One of the two models.
struct PrunedSide {
    std::string channels;         ///< "16,32,256", as ModelSettings::channels has them
    std::int64_t parameters = 0;  ///< how many there are
    double forward_s = 0;         ///< of a batch, in evaluation mode
};

/// What prune_run() did.
struct PruneResult {
    std::string model;       ///< of both
    std::int64_t batch = 0;  ///< samples that forward was measured with
    PrunedSide before;       ///< as it was trained
    PrunedSide after;        ///< as it was written
};

/// Takes away the channels of each layer but the last whose weights have the least L1 norm (Li et
/// al., "Pruning Filters for Efficient ConvNets", https://arxiv.org/abs/1608.08710), with what
/// reads them, layer by layer. Writes parameters and running statistics as safetensors: for a model
/// with these channels, by --load-weights. Once in a process, which must not have computed with
/// LibTorch before. Errors: E106 for a model whose channels are not a simple chain; E407 `output`
/// exists; those of infer().
PruneResult prune_run(const PruneSettings& settings);

}  // namespace lockstep
