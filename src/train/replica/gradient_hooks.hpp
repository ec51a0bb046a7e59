// SPDX-License-Identifier: Apache-2.0
// Tells when the gradient of a parameter is complete. Only this file hooks a parameter;
// leaf_graph.cpp hooks operators.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {

/// Calls `ready` on the thread of backward() each time a gradient was accumulated into
/// `parameter.grad()`. Replaces an earlier hook; lives as long as the parameter.
inline void on_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> ready) {
    struct Hook : torch::autograd::PostAccumulateGradHook {
        explicit Hook(std::function<void(const at::Tensor&)> told) : ready_(std::move(told)) {}
        void operator()(const at::Tensor& complete) override { ready_(complete); }

        std::function<void(const at::Tensor&)> ready_;
    };
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<Hook>(std::move(ready)));
}

}  // namespace lockstep
