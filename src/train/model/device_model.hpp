// SPDX-License-Identifier: Apache-2.0
// A model in the memory of a GPU.
#pragma once

#include "model/model.hpp"

#include <memory>

namespace lockstep {

/// Moves all tensors of `model` to `device`, and whatever it is given from then on; its outputs are
/// there, too.
std::unique_ptr<Model> on_device(std::unique_ptr<Model> model, at::Device device);

/// Where its parameters are.
at::Device device_of(const Model& model);

NamedTensors moved_to(at::Device device, NamedTensors tensors);

}  // namespace lockstep
