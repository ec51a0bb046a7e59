// SPDX-License-Identifier: Apache-2.0
// What a rank holds of the model that all ranks train: weights, gradients, optimizer state, and
// their way to the other ranks and back.
#pragma once

#include "lockstep/comm/progress.hpp"
#include "lockstep/core/link_times.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/optimizer.hpp"

#include "leaves/leaf_graph.hpp"
#include "model/model.hpp"
#include "replica/late_factors.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Scalars that travel with the gradients, summed over leaves. Floats; exact for what they hold.
enum class StepScalar : std::size_t {
    loss_sum,          ///< sum of per-sample losses divided by the step's samples
    requeue_wanted,    ///< > 0: some rank was asked to save and requeue
    interrupt_wanted,  ///< > 0: some rank was interrupted
    save_wanted,       ///< > 0: rank 0's clock or a user says that a checkpoint is due
    discard_wanted,    ///< > 0: a user wants the run to end without a checkpoint
    leaf_squares,      ///< of all leaves' gradients, each one's squared norm; see LeafNorms
    count,
};

/// Whether the squared norm of each leaf's gradient is added to StepScalar::leaf_squares.
enum class LeafNorms { ignore, measure };

/// A leaf's, by StepScalar.
using LeafScalars = std::array<float, static_cast<std::size_t>(StepScalar::count)>;

/// What is added of a leaf that was computed together with others.
struct LeafResult {
    LeafScalars wishes{};
    at::Tensor loss;  ///< where the model is
};

/// Integer buffers by name.
using Counters = std::map<std::string, std::int64_t>;

/// All tensors that a checkpoint keeps, by name, and the pieces of them that this rank owns. It
/// loads those, and saves them if its node's copy is the one that is saved.
struct ReplicaTensors {
    std::vector<TensorMeta> metas;
    std::vector<TensorPiece> pieces;  ///< in the replica's memory
    std::size_t own_pieces = 0;       ///< pieces after these are on all ranks, and one saves them
    bool is_first_copy = true;
};

/// One step is: begin_step; for each own leaf begin_leaf, backward, end_leaf; finish; update;
/// publish. Every rank does these in this order, with all leaves that it has, or with
/// begin_together, backward, end_together for all leaves at once: the bits are the same.
class Replica {
  public:
    virtual ~Replica() = default;

    virtual Model& model() = 0;

    virtual void begin_step(LeafNorms norms) = 0;

    /// The next own leaf, of so many passes of backward, 0 if it has no samples: buffers are as at
    /// the step's start, and backward adds its gradients to the leaf's.
    virtual void begin_leaf(int micro_batches) = 0;

    /// Between two passes of backward over one leaf.
    virtual void next_micro_batch() = 0;

    /// Within a leaf.
    virtual void add(StepScalar which, float value) = 0;

    /// The same of one number that may still be computed, where the model is.
    virtual void add(StepScalar which, const at::Tensor& value) = 0;

    /// A parameter that no pass has reached has no gradient; the user hears of it once.
    virtual void end_leaf() = 0;

    /// All own leaves at once, each of which has samples: backward gives nothing to parameters by
    /// itself, see sums().
    virtual void begin_together() = 0;

    /// `scope`: what forward did to buffers. `results`: by own leaf.
    virtual void end_together(const LeafScope& scope, std::span<const LeafResult> results) = 0;

    /// Where gradients of the leaf, or leaves, that are computed now may go instead of to autograd.
    virtual const LeafSums& sums() const = 0;
    virtual ParameterPlaces places() = 0;

    /// Backward tells nobody of gradients, but adds their parameters to `reached`, for who tells of
    /// them by places().ready later; nullptr: as always.
    virtual void hold_gradients(std::vector<std::size_t>* reached) = 0;

    /// In place of begin_step(): leaves are computed, and nothing leaves this rank. What they add
    /// up to is told by sums_hash(), and forgotten by end_rehearsal().
    virtual void begin_rehearsal() = 0;
    virtual std::string sums_hash() const = 0;
    virtual void end_rehearsal() = 0;

    /// Collective. Waits for the sums over all leaves.
    virtual void finish() = 0;

    /// Collective. Updates what this rank owns, by gradients as `rule` scales them, and leaves
    /// alone what no leaf of the step has reached; or, where it says so, nothing: weights,
    /// optimizer state, buffers and counters stay as they are. `samples`: of the step; buffers
    /// become their mean over the leaves that had some. The host waits for nothing that a GPU
    /// decides.
    virtual void update(UpdateStep step, const UpdateRule& rule, std::int64_t samples) = 0;

    /// Collective. Afterwards every rank computes with all updates.
    virtual void publish() = 0;

    /// Collective, between steps. The model computes with the average of its weights from now on,
    /// or with the weights again: each call exchanges them. Nothing where no average is kept.
    virtual void swap_average() = 0;

    /// After publish(): the sum over all leaves, the same on all ranks.
    virtual float scalar(StepScalar which) const = 0;

    /// After publish(): about the last update, the same bits on any number of ranks.
    virtual const UpdateDecision& decision() const = 0;

    /// Of initial weights, or of the end of a step.
    virtual ReplicaTensors tensors() = 0;

    /// Collective. The model's, and by "optimizer.missed." and a parameter's name how many updates
    /// left it alone, if any did.
    virtual Counters counters() const = 0;

    /// XXH3-128 over all parameters, then float buffers, then the model's counters, then frozen
    /// parameters that no file has, each in the model's order with its name. Any rank; between
    /// steps.
    virtual std::string hash() const = 0;

    /// Collective, between steps and before the first: pieces of tensors() may have been filled.
    /// Errors: E304 if `counters` lack one.
    virtual void start(const Counters& counters) = 0;

    /// For people: how large it is, and how its gradients travel.
    virtual std::string description() const = 0;

    /// Seconds this rank waited for others, since the last call.
    virtual double take_wait_s() = 0;

    /// As Exchange::take_links(); ranks are those of the exchange.
    virtual std::vector<LinkTimes> take_links() = 0;

    /// Seconds since the last call in which backward's hooks and the ends of leaves summed instead
    /// of a communication thread.
    virtual double take_launch_s() = 0;

    /// How long buckets travelled since the last call, and how much of that steps waited for.
    virtual OverlapTimes take_overlap() = 0;
};

}  // namespace lockstep
