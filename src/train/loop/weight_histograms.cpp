// SPDX-License-Identifier: Apache-2.0
#include "loop/weight_histograms.hpp"

#include <algorithm>

#include <torch/torch.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_values = 16'384;

Histogram histogram_of(const at::Tensor& parameter) {
    const at::NoGradGuard no_grad;
    const std::int64_t stride = std::max<std::int64_t>(1, parameter.numel() / most_values);
    const at::Tensor values = parameter.detach()
                                  .reshape({-1})
                                  .slice(0, 0, parameter.numel(), stride)
                                  .to(at::kCPU, at::kFloat)
                                  .contiguous();
    Histogram histogram;
    const float* const first = values.const_data_ptr<float>();
    for (std::int64_t i = 0; i < values.numel(); ++i) histogram.add(first[i]);
    return histogram;
}

}  // namespace

void add_weight_histograms(EventFile& events, const Model& model, std::int64_t step) {
    for (const auto& [name, parameter] : model.parameters())
        events.add_histogram(step, "weights/" + name, histogram_of(parameter));
}

}  // namespace lockstep
