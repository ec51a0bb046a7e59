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
    ModelSettings model;       ///< a name or a file, as for training
    ModelShape shape;          ///< shape of one sample's inputs, and of what is predicted
    std::int64_t batch = 128;  ///< samples of a step
    std::int64_t steps = 5;    ///< steps that are measured, after a warm-up
    int threads = 1;           ///< threads of one operator
    std::optional<InstructionSet> instruction_set;  ///< nothing: the processor's best
};

/// The halves of a step.
enum class StepPass { forward, backward };

/// All calls of one operator in one half of a step.
struct OperatorCost {
    StepPass pass = StepPass::forward;  ///< half of the step
    std::string name;                   ///< LibTorch's name, "aten::addmm"
    double calls = 0;                   ///< calls in each step
    double self_s = 0;  ///< seconds in each step, without operators that it calls and that are
                        ///< listed themselves
    std::optional<std::uint64_t>
        flops;  ///< floating-point operations in each step, if a formula is known
};

/// A module that has parameters of its own; of a program, each module of the Python class.
struct LayerCost {
    std::string name;                  ///< its path, "layer1.0.conv1"; "": the model
    std::int64_t parameters = 0;       ///< number of its parameters
    std::vector<std::int64_t> output;  ///< shape with samples first; empty: never used
    std::uint64_t activation_bytes =
        0;                  ///< bytes that forward keeps for backward; see ModelProfile
    double forward_s = 0;   ///< seconds in operators in each step, while they are watched
    double backward_s = 0;  ///< likewise
};

/// Results of profile_model().
struct ModelProfile {
    std::vector<std::vector<std::int64_t>> inputs{};  ///< shapes, with samples first
    std::vector<std::int64_t> output;                 ///< shape of the first output
    std::vector<OperatorCost> operators{};            ///< the slowest first
    /// Layers in the order of their first use. A program's operations count with their module. In
    /// other models, those without parameters, such as pooling or an activation, count with the
    /// layer before them, or with the first if none is before.
    std::vector<LayerCost> layers{};
    double forward_s =
        0;  ///< seconds in each step: median of as many steps without measurement of operators
    double backward_s = 0;  ///< likewise
    std::uint64_t peak_bytes =
        0;  ///< peak of activations, gradients and operators' temporary memory
};

/// Trains the model on random samples in this process alone, and measures the time and memory of
/// LibTorch's operators. Backward begins at the outputs: there is no loss, and no update. Call it
/// once in a process, which must not have computed with LibTorch before. Errors: E103, E250 of the
/// model, E217 if it cannot take such samples; those of the arithmetic.
ModelProfile profile_model(const ProfileSettings& settings);

}  // namespace lockstep
