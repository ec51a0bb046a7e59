// SPDX-License-Identifier: Apache-2.0
// Models that compute by another one: in the memory of a GPU, or in 16 bits.
#pragma once

#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"

#include <memory>
#include <set>
#include <string>
#include <utility>

namespace lockstep {

/// A model that computes by another one, whose tensors it has.
class WrappedModel : public Model {
  public:
    explicit WrappedModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}

    NamedTensors forward(const NamedTensors& inputs) override { return model_->forward(inputs); }
    NamedTensors parameters() const override { return model_->parameters(); }
    NamedTensors buffers() const override { return model_->buffers(); }
    NamedTensors frozen() const override { return model_->frozen(); }
    void freeze(const std::set<std::string>& names) override { model_->freeze(names); }
    bool has_frozen_in_file() const override { return model_->has_frozen_in_file(); }
    NamedTensors fixed() const override { return model_->fixed(); }
    void set_mode(ModelMode mode) override { model_->set_mode(mode); }
    ModelAuthor author() const override { return model_->author(); }

  private:
    std::unique_ptr<Model> model_;
};

/// Moves all tensors of `model` to `device`, and all later inputs; its outputs are there, too.
std::unique_ptr<Model> on_device(std::unique_ptr<Model> model, at::Device device);

/// Returns the device of its parameters.
at::Device device_of(const Model& model);

NamedTensors moved_to(at::Device device, NamedTensors tensors);

/// The type of a model's outputs that were computed in 16 bits.
enum class ReducedOutputs {
    fp32,            ///< copies of them
    as_is_to_learn,  ///< 16 bits if gradients are wanted, without copies; otherwise fp32
};

/// Returns `model`, whose operators compute in `precision` if they gain by it; tf32 is the GPU's
/// affair. Inputs, parameters, buffers and gradients stay fp32, outputs as `outputs` says.
std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model,
                                      Precision precision,
                                      ReducedOutputs outputs = ReducedOutputs::fp32);

/// Returns "--precision bf16 is 1.5 times as slow as fp32 here: 3 ms a micro-batch against 2 ms";
/// "" if it is faster, or slower only within the error of two measurements.
std::string slower_text(const std::string& precision, double full_s, double reduced_s);

}  // namespace lockstep
