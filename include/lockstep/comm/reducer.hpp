// SPDX-License-Identifier: Apache-2.0
// Turns "this gradient is ready" into summed buckets while backward still runs.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// begin_step; for each own leaf: begin_leaf, add(every tensor), end_leaf; finish. See Exchange.
class Reducer {
  public:
    /// `layout`, `plan` and `exchange` outlive the reducer. The plan says in which order is summed.
    Reducer(const FlatLayout& layout, const TreePlan& plan, int rank, Exchange& exchange);

    void begin_step();

    /// Zeroes and returns the slot for the gradients of the next own leaf (layout.size() floats).
    /// The state bucket of that slot is the caller's to fill before end_leaf().
    float* begin_leaf();

    /// The gradient of `tensor` is complete in the current leaf's slot. A bucket whose tensors are
    /// all there is merged with its siblings; in the last leaf it starts its exchange. Any order;
    /// called from autograd hooks on the thread that runs the step.
    void add(std::size_t tensor);

    /// Ends the leaf: tensors that were not added count as zero (see missing()).
    void end_leaf();

    /// Waits until every own stripe is summed.
    void finish();

    /// After finish(): the sum over all leaves of this rank's stripe of `bucket`.
    const float* reduced(std::size_t bucket) const { return reduced_[bucket]; }

    /// Tensors that were not added in the last end_leaf().
    std::span<const std::size_t> missing() const { return missing_; }

    /// How many different pointers begin_leaf() returns.
    int slots() const { return plan_.slots(); }

  private:
    /// slot `into` += slot `from`
    struct SlotMerge {
        int into, from;
    };

    void complete_bucket(std::size_t bucket);
    void launch_ready();
    void progress(Wait wait);
    void note_missing();
    bool is_last_leaf() const { return next_leaf_ == leaves_.size(); }

    const FlatLayout& layout_;
    const TreePlan& plan_;
    Exchange& exchange_;
    int rank_;
    LeafRange leaves_;
    int next_leaf_ = 0;  ///< leaves begun in this step
    float* slot_ = nullptr;
    std::vector<Partial> stack_;            ///< as it is when the current leaf is merged
    std::vector<SlotMerge> merges_;         ///< what the current leaf leads to, for each bucket
    std::vector<std::size_t> waiting_for_;  ///< tensors still to come, by bucket
    std::vector<bool> added_;               ///< by tensor, in the current leaf
    std::vector<bool> complete_;            ///< by bucket, in the current leaf
    std::size_t next_launch_ = 0, next_reduce_ = 0;
    std::vector<const float*> reduced_;
    std::vector<std::size_t> missing_;
};

}  // namespace lockstep
