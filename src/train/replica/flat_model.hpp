// SPDX-License-Identifier: Apache-2.0
// A model whose parameters, gradients and buffers are views of flat vectors.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "model/model.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Scalars that travel with the gradients, summed over leaves. Floats; exact for what they hold.
enum class StepScalar : std::size_t {
    loss_sum,          ///< sum of per-sample losses divided by the step's samples
    requeue_wanted,    ///< > 0: some rank was asked to save and requeue
    interrupt_wanted,  ///< > 0: some rank was interrupted
    save_wanted,       ///< > 0: rank 0's clock or a user says that a checkpoint is due
    discard_wanted,    ///< > 0: a user wants the run to end without a checkpoint
    count,
};

/// Where a named tensor of the model lies in the flat vector.
struct FlatTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    FloatRange range;
};

/// Owns the model and knows its flat layout: parameters, then state = float buffers, increments of
/// integer buffers, step scalars.
class FlatModel {
  public:
    /// `order`: registration indices as backward finishes them; empty: reverse registration.
    explicit FlatModel(std::unique_ptr<Model> model,
                       std::vector<std::size_t> order = {},
                       BucketLimits limits = {});

    Model& model() { return *model_; }
    const FlatLayout& layout() const { return *layout_; }
    const std::vector<FlatTensor>& parameters() const { return parameter_places_; }
    const std::vector<FlatTensor>& buffers() const { return buffer_places_; }
    std::int64_t parameter_count() const;

    /// Copies the model's present parameters and buffers into `values` within `part`.
    void copy_to(float* values, FloatRange part) const;

    /// Parameters become views of `values` (layout().size() floats), which must outlive this.
    void adopt(float* values);

    /// Gradients of the next backward() accumulate into views of `slot`.
    void use_gradients(float* slot);

    /// Whether parameter `index` still has its gradient in the slot given last.
    bool gradient_in_place(std::size_t index) const;

    /// Before a leaf: buffers as they were at the start of the step.
    void restore_buffers(const float* values);

    /// After a leaf with samples: its buffers into the state of `slot`.
    void store_buffers(float* slot) const;

    /// After a step: buffers := mean over active leaves, given the published values.
    void finish_buffers(const float* values);

    float& scalar(float* flat, StepScalar which) const;

    /// Integer buffers, by name, for checkpoints. Values as of the last finished step.
    std::map<std::string, std::int64_t> counters() const;
    void set_counters(const std::map<std::string, std::int64_t>& counters);

  private:
    struct Counter {
        std::string name;
        at::Tensor tensor;
        std::int64_t at_start = 0;
        std::size_t place = 0;  ///< of its increment in the flat vector
    };

    std::vector<at::Tensor>& gradient_views(float* slot);

    std::unique_ptr<Model> model_;
    std::vector<at::Tensor> parameters_, buffers_;
    std::vector<Counter> counters_;
    std::vector<FlatTensor> parameter_places_, buffer_places_;
    std::unique_ptr<FlatLayout> layout_;
    std::size_t scalars_ = 0;  ///< place of the first step scalar
    std::map<float*, std::vector<at::Tensor>> views_;
    const std::vector<at::Tensor>* current_ = nullptr;
};

}  // namespace lockstep
