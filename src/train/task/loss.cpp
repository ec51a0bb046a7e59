// SPDX-License-Identifier: Apache-2.0
#include "task/loss.hpp"

#include <ATen/Functions.h>
#include <torch/nn/functional/loss.h>

namespace lockstep {
namespace {

namespace functional = torch::nn::functional;

at::Tensor loss_of_each(const at::Tensor& logits, const at::Tensor& labels) {
    return functional::cross_entropy(
        logits, labels, functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

}  // namespace

at::Tensor summed_loss(const at::Tensor& logits, const LeafInput& input) {
    if (!input.partner_labels.defined() && !input.weights.defined())
        return functional::cross_entropy(
            logits, input.labels, functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    at::Tensor losses = loss_of_each(logits, input.labels);
    if (input.partner_labels.defined())
        losses =
            losses * input.lambda + loss_of_each(logits, input.partner_labels) * (1 - input.lambda);
    if (input.weights.defined()) losses = losses * input.weights;
    return losses.sum();
}

std::int64_t count_correct(const at::Tensor& logits, const LeafInput& input) {
    at::Tensor right = logits.detach().argmax(1).eq(input.labels);
    if (input.weights.defined()) right = right.logical_and(input.weights.gt(0));
    return right.sum().item<std::int64_t>();
}

}  // namespace lockstep
