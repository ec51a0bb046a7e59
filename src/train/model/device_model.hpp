// SPDX-License-Identifier: Apache-2.0
// A model in the memory of a GPU.
#pragma once

#include "model/model.hpp"

#include <memory>

namespace lockstep {

/// Moves all tensors of `model` to `device`, and all later inputs; its outputs are there, too.
std::unique_ptr<Model> on_device(std::unique_ptr<Model> model, at::Device device);

/// Returns the device of its parameters.
at::Device device_of(const Model& model);

NamedTensors moved_to(at::Device device, NamedTensors tensors);

}  // namespace lockstep
