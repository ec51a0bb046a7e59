// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time and memory of a model's training step, without any data.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Settings of profile_model().
struct ProfileSettings {
    ModelSettings model;                            ///< a name or a file, as of training
    ModelShape shape;                               ///< of one sample, and of what is predicted
    std::int64_t batch = 128;                       ///< samples of a step
    std::int64_t steps = 5;                         ///< that are watched, after a warm-up
    int threads = 1;                                ///< of one operator
    std::optional<InstructionSet> instruction_set;  ///< nothing: the processor's best
};

/// The halves of a step.
enum class StepPass { forward, backward };

/// All calls of one operator in one half of a step.
struct OperatorCost {
    StepPass pass = StepPass::forward;   ///< which half
    std::string name;                    ///< LibTorch's, "aten::addmm"
    double calls = 0;                    ///< a step
    double self_s = 0;                   ///< a step, without what it called that is listed itself
    std::optional<std::uint64_t> flops;  ///< a step, if a formula is known
};

/// A module that has parameters of its own.
struct LayerCost {
    std::string name;                    ///< its parameters' up to the last dot; "": the model
    std::int64_t parameters = 0;         ///< how many it has
    std::vector<std::int64_t> output;    ///< shape, with samples first; empty: never used
    std::uint64_t activation_bytes = 0;  ///< that forward leaves for backward; see ModelProfile
};

/// What profile_model() found.
struct ModelProfile {
    std::vector<std::int64_t> input;      ///< shape, with samples first
    std::vector<std::int64_t> output;     ///< likewise
    std::vector<OperatorCost> operators;  ///< the slowest first
    /// In the model's order. What follows a layer until the next one, pooling or an activation, is
    /// counted with it, and what precedes the first with the first.
    std::vector<LayerCost> layers;
    double forward_s = 0;          ///< a step, median of as many that were not watched
    double backward_s = 0;         ///< likewise
    std::uint64_t peak_bytes = 0;  ///< of activations, gradients and what operators need meanwhile
};

/// Trains the model on samples that are made up, by this process alone, and measures LibTorch's
/// operators and at the memory that they take. Backward begins at the outputs: there is no loss,
/// and no update. Once in a process, which must not have computed with LibTorch before. Errors:
/// E103, E250 of the model, E217 if it cannot take such samples; those of the arithmetic.
ModelProfile profile_model(const ProfileSettings& settings);

}  // namespace lockstep
