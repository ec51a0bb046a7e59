// SPDX-License-Identifier: Apache-2.0
// Tells when the gradient of a parameter is complete. Only this file hooks a parameter;
// leaf_graph.cpp hooks operators.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Calls `ready` on the thread of backward() each time a gradient was accumulated into
/// `parameter.grad()`. Replaces an earlier hook; lives as long as the parameter.
void on_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> ready);

}  // namespace lockstep
