// SPDX-License-Identifier: Apache-2.0
// To a model its tensors are objects; to everything that moves or updates numbers they are one
// vector:
//
//     | parameters, as backward finishes them | float buffers | counters | step's scalars |
//       each at a 64-byte line, in buckets      the state bucket, averaged or summed
//
//     values    what all ranks see; parameters are views of it, so that publish() updates the model
//     slot      one leaf's (or partial sum's) gradients; .grad() of each parameter is a view of it
//
// No gradient is copied into a bucket or out of it: autograd adds straight into the slot.
//
// Integer buffers (batch counters) travel as the float increment of a leaf, not as numbers:
// increments are small and exact in a float, and their mean over the leaves is what one leaf would
// have counted.
//
// What must never happen: autograd puts a gradient elsewhere. It replaces .grad() in some cases
// instead of adding to it; the slot would keep zeros, and training would go on, wrong and without a
// sign. gradient_in_place() is asked for at each gradient (train_step.cpp).
//
// Tested: train/replica/flat_model_test.cpp (views keep values, gradients equal autograd's own,
// buffers and counters of several leaves).

#include "replica/flat_model.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <torch/types.h>

namespace lockstep {
namespace {

std::size_t element_count(const at::Tensor& tensor) {
    return static_cast<std::size_t>(tensor.numel());
}

at::Tensor view_of(float* flat, const FlatTensor& place) {
    return torch::from_blob(flat + place.range.begin, place.shape, torch::kFloat32);
}

// The part of `tensor`'s elements that lies in `part` of the flat vector.
void copy_part(const at::Tensor& tensor, const FlatTensor& place, float* values, FloatRange part) {
    const std::size_t begin = std::max(part.begin, place.range.begin);
    const std::size_t end = std::min(part.end, place.range.end);
    if (begin >= end) return;
    const at::Tensor dense = tensor.detach().contiguous();
    std::memcpy(values + begin,
                dense.const_data_ptr<float>() + (begin - place.range.begin),
                (end - begin) * sizeof(float));
}

}  // namespace

FlatModel::FlatModel(std::unique_ptr<Model> model,
                     std::vector<std::size_t> order,
                     BucketLimits limits)
    : model_(std::move(model)) {
    std::vector<std::size_t> counts;
    for (const auto& [name, tensor] : model_->parameters()) {
        expect(tensor.scalar_type() == torch::kFloat32, "parameters are fp32");
        parameters_.push_back(tensor);
        parameter_places_.push_back({name, tensor.sizes().vec(), {}});
        counts.push_back(element_count(tensor));
    }
    std::size_t state = 0;
    for (const auto& [name, tensor] : model_->buffers()) {
        if (tensor.is_floating_point()) {
            buffers_.push_back(tensor);
            buffer_places_.push_back(
                {name, tensor.sizes().vec(), {state, state + element_count(tensor)}});
            state += element_count(tensor);
        } else {
            expect(tensor.numel() == 1, "integer buffers are single counters");
            counters_.push_back({name, tensor, tensor.item<std::int64_t>(), 0});
        }
    }
    const std::size_t all = state + counters_.size() + static_cast<std::size_t>(StepScalar::count);
    layout_ = std::make_unique<FlatLayout>(counts, all, limits, order);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        parameter_places_[i].range = layout_->tensor(i);
    const std::size_t base = layout_->state().begin;
    for (FlatTensor& place : buffer_places_)
        place.range = {base + place.range.begin, base + place.range.end};
    for (std::size_t i = 0; i < counters_.size(); ++i) counters_[i].place = base + state + i;
    scalars_ = base + state + counters_.size();
}

std::int64_t FlatModel::parameter_count() const {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : parameters_) count += parameter.numel();
    return count;
}

void FlatModel::copy_to(float* values, FloatRange part) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        copy_part(parameters_[i], parameter_places_[i], values, part);
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        copy_part(buffers_[i], buffer_places_[i], values, part);
}

void FlatModel::adopt(float* values) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        parameters_[i].set_data(view_of(values, parameter_places_[i]));
}

std::vector<at::Tensor>& FlatModel::gradient_views(float* slot) {
    auto& views = views_[slot];
    if (views.empty())
        for (const FlatTensor& place : parameter_places_) views.push_back(view_of(slot, place));
    return views;
}

void FlatModel::use_gradients(float* slot) {
    const auto& views = gradient_views(slot);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = views[i];
    current_ = &views;
}

bool FlatModel::gradient_in_place(std::size_t index) const {
    return parameters_[index].grad().const_data_ptr() == (*current_)[index].const_data_ptr();
}

void FlatModel::restore_buffers(const float* values) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        std::memcpy(buffers_[i].mutable_data_ptr<float>(),
                    values + buffer_places_[i].range.begin,
                    buffer_places_[i].range.size() * sizeof(float));
    for (Counter& counter : counters_) counter.tensor.fill_(counter.at_start);
}

void FlatModel::store_buffers(float* slot) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        std::memcpy(slot + buffer_places_[i].range.begin,
                    buffers_[i].const_data_ptr<float>(),
                    buffer_places_[i].range.size() * sizeof(float));
    for (const Counter& counter : counters_)
        slot[counter.place] =
            static_cast<float>(counter.tensor.item<std::int64_t>() - counter.at_start);
}

void FlatModel::finish_buffers(const float* values) {
    for (Counter& counter : counters_) counter.at_start += std::lround(values[counter.place]);
    restore_buffers(values);
}

float& FlatModel::scalar(float* flat, StepScalar which) const {
    return flat[scalars_ + static_cast<std::size_t>(which)];
}

std::map<std::string, std::int64_t> FlatModel::counters() const {
    std::map<std::string, std::int64_t> values;
    for (const Counter& counter : counters_) values[counter.name] = counter.at_start;
    return values;
}

void FlatModel::set_counters(const std::map<std::string, std::int64_t>& counters) {
    for (Counter& counter : counters_) {
        const auto found = counters.find(counter.name);
        check(found != counters.end(),
              [&] { return Error("E304", "the checkpoint lacks counter '" + counter.name + "'"); });
        counter.at_start = found->second;
        counter.tensor.fill_(counter.at_start);
    }
}

}  // namespace lockstep
