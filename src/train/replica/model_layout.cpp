// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "replica/replica.hpp"

namespace lockstep {

ModelLayout::ModelLayout(const Model& model,
                         std::span<const std::size_t> order,
                         BucketLimits limits)
    : flat_(place(model, order, limits)) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].range = flat_.tensor(i);
    std::size_t at = flat_.state().begin;
    for (std::vector<FlatTensor>* tensors : {&buffers_, &counters_})
        for (FlatTensor& tensor : *tensors) {
            tensor.range = {at, at + tensor.range.size()};
            at = tensor.range.end;
        }
}

// Fills the lists, with ranges that are sizes only.
FlatLayout ModelLayout::place(const Model& model,
                              std::span<const std::size_t> order,
                              BucketLimits limits) {
    std::vector<std::size_t> counts;
    std::size_t state = static_cast<std::size_t>(StepScalar::count);
    for (const auto& [name, tensor] : model.parameters()) {
        expect(tensor.scalar_type() == at::kFloat, "parameters are fp32");
        counts.push_back(static_cast<std::size_t>(tensor.numel()));
        parameters_.push_back({name, tensor.sizes().vec(), {}});
    }
    for (const auto& [name, tensor] : model.buffers()) {
        const auto count = static_cast<std::size_t>(tensor.numel());
        const bool is_counter = !tensor.is_floating_point();
        expect(!is_counter || count == 1, "integer buffers are single counters");
        (is_counter ? counters_ : buffers_).push_back({name, tensor.sizes().vec(), {0, count}});
        state += count;
    }
    return FlatLayout(counts, state, limits, order);
}

}  // namespace lockstep
