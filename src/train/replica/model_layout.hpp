// SPDX-License-Identifier: Apache-2.0
// The places of a model's tensors in the flat vector that ranks sum and update.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Scalars that travel with the gradients, summed over leaves. They are floats, exact for these
/// values.
enum class StepScalar : std::size_t {
    loss_sum,          ///< sum of per-sample losses divided by the step's samples
    requeue_wanted,    ///< > 0: some rank has a request to save and requeue
    interrupt_wanted,  ///< > 0: some rank was interrupted
    save_wanted,       ///< > 0: rank 0's clock or a user requests a checkpoint
    discard_wanted,    ///< > 0: a user wants the run to end without a checkpoint
    leaf_squares,      ///< sum of squared norms of all leaves' gradients; see LeafNorms
    count,
};

/// The place of a named tensor of the model in the flat vector.
struct FlatTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    FloatRange range;
};

/// Parameters, as backward finishes them, then state = float buffers, increments of integer
/// buffers, step scalars.
class ModelLayout {
  public:
    /// `order`: registration indices as backward finishes them; empty: reverse registration.
    explicit ModelLayout(const Model& model,
                         std::span<const std::size_t> order = {},
                         BucketLimits limits = {});

    const FlatLayout& flat() const { return flat_; }

    /// Returns them in the model's order; counters have one float, for their increment.
    const std::vector<FlatTensor>& parameters() const { return parameters_; }
    const std::vector<FlatTensor>& buffers() const { return buffers_; }
    const std::vector<FlatTensor>& counters() const { return counters_; }

    /// Returns the part of the state that is averaged over leaves; the rest, scalars, is summed.
    FloatRange averaged() const { return {flat_.state().begin, scalar(StepScalar::loss_sum)}; }
    std::size_t scalar(StepScalar which) const {
        return flat_.state().end - static_cast<std::size_t>(StepScalar::count) +
               static_cast<std::size_t>(which);
    }

    std::int64_t parameter_count() const;

  private:
    FlatLayout place(const Model& model, std::span<const std::size_t> order, BucketLimits limits);

    std::vector<FlatTensor> parameters_, buffers_, counters_;
    FlatLayout flat_;
};

}  // namespace lockstep
