// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns finished gradients into summed buckets while backward still runs.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// The thread that moves buckets on.
enum class ProgressMode {
    in_line,  ///< the step's thread, whenever a bucket is complete
    thread,   ///< a separate thread, for ranks with a core to spare
};

/// Settings for the progress of a Reducer's buckets.
struct ProgressSettings {
    ProgressMode mode = ProgressMode::in_line;  ///< the thread that moves buckets on
    std::optional<int> cpu;  ///< CPU of the thread; without it the system chooses
};

/// Returns `thread` only if the rank has more CPUs than compute threads: on a shared core the
/// thread would slow down backward by what it gains for communication.
ProgressMode progress_mode_for(int cpus, int compute_threads);

/// Times of communication since the last query.
struct OverlapTimes {
    double busy_s = 0;     ///< time in which some bucket was between its arrival and its sum
    double exposed_s = 0;  ///< time that the step waited in finish()
};

class BucketPipeline;

/// The path of a leaf's sums into their slots: into `slot`, then each `into` += `from` in turn.
struct LeafPlace {
    /// A merge of two slots.
    struct Merge {
        int into;  ///< holds the sum afterwards
        int from;  ///< is free afterwards
    };
    int slot = 0;               ///< slot of the leaf's own values
    std::vector<Merge> merges;  ///< merges after that, in this order
};

/// Order of calls: begin_step; for each own leaf: begin_leaf, add(every tensor), end_leaf; finish;
/// Exchange::publish, before which no slot may be written again. If one pass computes all own
/// leaves: begin_together, add, end_together in their place. The sums have the same bits. The
/// thread that runs the step makes all calls. With ProgressMode::thread the exchange belongs to the
/// communication thread from the begin of the first leaf to the end of finish().
class Reducer {
  public:
    /// `layout`, `plan` and `exchange` must outlive the reducer. The plan defines the order of
    /// summation. Errors: E642 if the communication thread cannot stay on its CPU.
    Reducer(const FlatLayout& layout,
            const TreePlan& plan,
            int rank,
            Exchange& exchange,
            const ProgressSettings& progress = {});
    ~Reducer();

    /// Call before the first leaf of a step. The sums of the last step become invalid.
    void begin_step();

    /// Replaces begin_step() for a rehearsal: leaves are computed and merged in this rank's slots,
    /// and nothing is sent. finish() is not called.
    void begin_rehearsal();

    /// Zeroes and returns the slot for the gradients of the next own leaf (layout.size() floats),
    /// which are accumulated over `micro_batches` passes of backward. The caller fills the state
    /// bucket of that slot before end_leaf().
    float* begin_leaf(int micro_batches = 1);

    /// Call between two passes of backward over one leaf.
    void next_micro_batch();

    /// Notes that this pass has added the gradient of `tensor` to the current leaf's slot; after
    /// the last pass it is complete. A bucket whose tensors are all complete is merged with its
    /// siblings; in the last leaf it starts its exchange. Any order; called from autograd hooks.
    void add(std::size_t tensor);

    /// Ends the leaf. The slot's values of missing() tensors are summed too: zeros unless the
    /// caller wrote there.
    void end_leaf();

    /// Replaces begin_leaf() for all own leaves. The caller fills slots as places() say and then
    /// calls add() once for each tensor, or fills the partials with the values of missing() ones.
    void begin_together();

    /// Returns the places by own leaf.
    std::span<const LeafPlace> places() const { return places_; }

    /// Returns Exchange::slot().
    float* slot(int index) const { return exchange_.slot(index); }

    /// Returns the number of partials: slots [0, partials()) finally hold the sums of all own
    /// leaves.
    int partials() const { return partials_; }

    /// Ends the pass; the state must be filled too.
    void end_together() { complete_all(); }

    /// Collective. Waits until every own stripe is summed. Throws errors of the communication
    /// thread.
    void finish();

    /// Returns the sum over all leaves of this rank's stripe of `bucket`, after finish().
    const float* reduced(std::size_t bucket) const;

    /// Returns the tensors that no pass over the leaf, or over all leaves, has added.
    std::vector<std::size_t> missing() const;

    /// Returns the seconds since the last call in which add() and the ends of leaves moved buckets,
    /// instead of a communication thread.
    double take_launch_s();

    /// Returns the times since the last call, after finish().
    OverlapTimes take_overlap();

    /// Returns the number of different pointers that begin_leaf() returns.
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
    std::span<const LeafPlace::Merge> merges_;  ///< merges after the current leaf, for each bucket
    std::vector<std::size_t> waiting_for_;      ///< number of missing tensors, by bucket
    std::vector<int> added_in_;   ///< last pass that added it, by tensor, from 1; 0: none
    std::vector<bool> complete_;  ///< by bucket, in the current leaf
    bool rehearses_ = false;
    std::size_t next_launch_ = 0;
    double exposed_s_ = 0;
    std::unique_ptr<BucketPipeline> pipeline_;
};

}  // namespace lockstep
