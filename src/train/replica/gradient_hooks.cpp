// SPDX-License-Identifier: Apache-2.0
#include "replica/gradient_hooks.hpp"

#include <memory>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {
namespace {

struct Hook : torch::autograd::PostAccumulateGradHook {
    explicit Hook(std::function<void(const at::Tensor&)> ready) : ready_(std::move(ready)) {}
    void operator()(const at::Tensor& parameter) override { ready_(parameter); }

    std::function<void(const at::Tensor&)> ready_;
};

}  // namespace

void on_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> ready) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<Hook>(std::move(ready)));
}

}  // namespace lockstep
