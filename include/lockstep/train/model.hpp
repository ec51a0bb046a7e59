// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models by name. A model is an ordinary torch::nn::Module with one forward().
#pragma once

#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep {

/// A tensor with a name; it shares its memory.
struct NamedTensor {
    std::string name;      ///< such as "loss"
    torch::Tensor tensor;  ///< its values
};
/// Tensors in order.
using NamedTensors = std::vector<NamedTensor>;

/// A model for any task. Buffers may be floats (running statistics, averaged over leaves) or
/// integers (counters, which all leaves advance alike).
class Classifier : public torch::nn::Module {
  public:
    /// Computes the outputs for the first input of --inputs, by the shape of a sample: f32 [n, C,
    /// H, W] for images, [n, F, 1, 1] for [F], [n, 1, T, F] for [T, F], [n, D, H, W] for other [D,
    /// H, W]; i64 [n, T] for tokens. Returns f32, by the task: logits [n, classes] for
    /// classification and multi-label, numbers [n, K] for regression, logits [n, classes, H, W] for
    /// segmentation and [n, T, vocabulary] for next-token.
    virtual torch::Tensor forward(const torch::Tensor& input) = 0;

    /// Does the same for several inputs in the order of --inputs, each in the form of forward().
    /// Errors: E217 if the model takes only one.
    virtual torch::Tensor forward_all(const std::vector<torch::Tensor>& inputs);

    /// Does the same with a name for each output; a class without it returns forward_all() as
    /// "output". With --task program, what is learned is among the inputs, as it is stored: whole
    /// numbers as i64, others as f32, tokens as [n, T + 1]. The output called "loss", or else the
    /// first, is then the loss of each sample, [n]. Others are metrics: a number for each sample,
    /// or one for all.
    virtual NamedTensors forward_named(const std::vector<torch::Tensor>& inputs);
};

/// Makes a model. LibTorch's generator is seeded before, so that weights depend on the run's seed
/// alone.
using ModelFactory =
    std::function<std::shared_ptr<Classifier>(const ModelShape&, const ModelSettings&)>;

/// Adds a model under `name`; call before training starts. An existing name is replaced.
void register_model(const std::string& name, ModelFactory factory);

/// Returns all names, sorted: those of built_in_models(), and all registered ones.
std::vector<std::string> model_names();

/// Builds a model with weights that depend on `seed` only. Errors: E103 unknown name, E217 a shape
/// that the model cannot take.
std::shared_ptr<Classifier> make_model(const ModelSettings& settings,
                                       const ModelShape& shape,
                                       std::uint64_t seed);

}  // namespace lockstep
