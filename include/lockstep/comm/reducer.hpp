// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns "this gradient is ready" into summed buckets while backward still runs.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Which thread moves buckets on.
enum class ProgressMode {
    in_line,  ///< the step's thread, whenever a bucket is complete
    thread,   ///< a thread of its own, for ranks with a core to spare
};

/// How a Reducer's buckets are moved.
struct ProgressSettings {
    ProgressMode mode = ProgressMode::in_line;  ///< who moves them
    std::optional<int> cpu;  ///< where the thread stays; without it: where the system puts it
};

/// A thread of its own only if the rank has more CPUs than compute threads: on a shared core it
/// would take from backward what it gives to communication.
ProgressMode progress_mode_for(int cpus, int compute_threads);

/// What communication cost since it was last asked for.
struct OverlapTimes {
    double busy_s = 0;     ///< some bucket was between its arrival and its sum
    double exposed_s = 0;  ///< the step waited in finish()
};

class BucketPipeline;

/// How a leaf's sums come into their slots: into `slot`, then each `into` += `from` in turn.
struct LeafPlace {
    /// Of two slots.
    struct Merge {
        int into;  ///< holds the sum afterwards
        int from;  ///< is free afterwards
    };
    int slot = 0;               ///< where the leaf's own values go
    std::vector<Merge> merges;  ///< once they are there, in this order
};

/// begin_step; for each own leaf: begin_leaf, add(every tensor), end_leaf; finish. Or, where one
/// pass computes all own leaves: begin_step, begin_together, add, end_together, finish. The sums
/// have the same bits. See Exchange.
/// Everything is called by the thread that runs the step. With ProgressMode::thread the exchange
/// belongs to the communication thread from the first leaf's begin to the end of finish().
class Reducer {
  public:
    /// `layout`, `plan` and `exchange` outlive the reducer. The plan says in which order is summed.
    /// Errors: E642 if the communication thread cannot stay on its CPU.
    Reducer(const FlatLayout& layout,
            const TreePlan& plan,
            int rank,
            Exchange& exchange,
            const ProgressSettings& progress = {});
    ~Reducer();

    /// Before the first leaf of a step. The sums of the last step are void from here on.
    void begin_step();

    /// In place of begin_step(): leaves are computed and merged in this rank's slots, and nothing
    /// leaves it. Without finish().
    void begin_rehearsal();

    /// Zeroes and returns the slot for the gradients of the next own leaf (layout.size() floats),
    /// which are accumulated over `micro_batches` passes of backward.
    /// The state bucket of that slot is the caller's to fill before end_leaf().
    float* begin_leaf(int micro_batches = 1);

    /// Between two passes of backward over one leaf.
    void next_micro_batch();

    /// This pass has added the gradient of `tensor` to the current leaf's slot; in the last pass it
    /// is then complete. A bucket whose tensors are all complete is merged with its siblings; in
    /// the last leaf it starts its exchange. Any order; called from autograd hooks.
    void add(std::size_t tensor);

    /// Ends the leaf: what its slot has of missing() tensors, zeros unless the caller wrote there,
    /// is summed, too.
    void end_leaf();

    /// In place of begin_leaf() for each own leaf: the caller fills slots as places() say and then
    /// add()s tensors, each once, or fills partials with what missing() ones count as.
    void begin_together();

    /// By own leaf.
    std::span<const LeafPlace> places() const { return places_; }

    /// As Exchange::slot().
    float* slot(int index) const { return exchange_.slot(index); }

    /// Slots [0, partials()) hold the sums of all own leaves in the end.
    int partials() const { return partials_; }

    /// The state must be there, too.
    void end_together();

    /// Collective. Waits until every own stripe is summed. Throws what the communication thread
    /// met.
    void finish();

    /// After finish(): the sum over all leaves of this rank's stripe of `bucket`.
    const float* reduced(std::size_t bucket) const;

    /// Tensors that no pass over the leaf, or over all of them, has added.
    std::vector<std::size_t> missing() const;

    /// Seconds since the last call in which add() and the ends of leaves moved buckets through the
    /// exchange instead of a communication thread.
    double take_launch_s();

    /// After finish(), since the last call.
    OverlapTimes take_overlap();

    /// How many different pointers begin_leaf() returns.
    int slots() const { return plan_.slots(); }

  private:
    void await_all();
    void complete_bucket(std::size_t bucket);
    void complete_all();
    void launch_ready();
    bool is_last_leaf() const { return next_leaf_ == places_.size(); }

    const FlatLayout& layout_;
    const TreePlan& plan_;
    Exchange& exchange_;
    std::vector<LeafPlace> places_;
    int partials_ = 0;
    std::size_t next_leaf_ = 0;  ///< leaves begun in this step
    int micro_batches_ = 0, micro_batch_ = 0;
    float* slot_ = nullptr;
    std::span<const LeafPlace::Merge> merges_;  ///< what the current leaf leads to, for each bucket
    std::vector<std::size_t> waiting_for_;      ///< tensors still to come, by bucket
    std::vector<int> added_in_;   ///< by tensor: the last pass that added it, from 1; 0 if none
    std::vector<bool> complete_;  ///< by bucket, in the current leaf
    bool rehearses_ = false;
    std::size_t next_launch_ = 0;
    double exposed_s_ = 0;
    std::unique_ptr<BucketPipeline> pipeline_;
};

}  // namespace lockstep
