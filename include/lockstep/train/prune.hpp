// SPDX-License-Identifier: Apache-2.0
/// @file
/// Removes channels from a trained model, which gets smaller and faster and can be trained on.
#pragma once

#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Settings of prune_run().
struct PruneSettings {
    fs::path run;         ///< folder of a run, whose newest whole checkpoint is used
    fs::path weights;     ///< safetensors to use instead of the checkpoint; "": none
    fs::path train_data;  ///< present place of the run's training data; "": where the run had them
    fs::path output;      ///< new safetensors file
    double keep = 0.5;    ///< share of each layer's channels that is kept
};

/// The model before or after pruning.
struct PrunedSide {
    std::string channels;         ///< "16,32,256", in the form of ModelSettings::channels
    std::int64_t parameters = 0;  ///< number of parameters
    double forward_s = 0;         ///< time of one batch, in evaluation mode
};

/// Results of prune_run().
struct PruneResult {
    std::string model;       ///< name of both models
    std::int64_t batch = 0;  ///< samples of the batch that is timed
    PrunedSide before;       ///< the trained model
    PrunedSide after{};      ///< the model as written
};

/// Removes from each layer but the last the channels whose weights have the smallest L1 norm, and
/// the weights that read them, layer by layer (Li et al., "Pruning Filters for Efficient ConvNets",
/// https://arxiv.org/abs/1608.08710). Writes parameters and running statistics as safetensors: for
/// a model with these channels, by --load-weights. Call it once in a process, which must not have
/// computed with LibTorch before. Errors: E106 for a model whose channels are not a simple chain;
/// E407 `output` exists; those of infer().
PruneResult prune_run(const PruneSettings& settings);

}  // namespace lockstep
