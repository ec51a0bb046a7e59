// SPDX-License-Identifier: Apache-2.0
#include "gradient_order.hpp"

#include "gradient_hooks.hpp"

#include <algorithm>

#include <ATen/Functions.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
    return copies;
}

void restore(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& copies) {
    const torch::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(copies[i]);
}

void run_backward(Classifier& model, const ModelShape& shape) {
    const auto layout =
        torch::TensorOptions(torch::kFloat32).memory_format(at::MemoryFormat::ChannelsLast);
    const at::Tensor blank = torch::zeros({2, shape.channels, shape.height, shape.width}, layout);
    model.forward(blank).sum().backward();
}

}  // namespace

std::vector<std::size_t> observe_gradient_order(Classifier& model, const ModelShape& shape) {
    const std::vector<at::Tensor> parameters = model.parameters(), buffers = model.buffers();
    const std::vector<at::Tensor> before = copies_of(buffers);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        on_gradient(parameters[i], [&order, i](const at::Tensor&) { order.push_back(i); });
    run_backward(model, shape);
    restore(buffers, before);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].mutable_grad().reset();
        on_gradient(parameters[i], [](const at::Tensor&) {});
        if (std::ranges::find(order, i) == order.end()) order.push_back(i);
    }
    return order;
}

}  // namespace lockstep
