// SPDX-License-Identifier: Apache-2.0
// A rank's part of the trained model: weights, gradients, optimizer state, and their exchange with
// the other ranks. They are in flat vectors: in host memory, where ranks of a node share one copy
// of parameters and optimizer state, or in a GPU's.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/link_times.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/memory.hpp"

#include "leaves/leaf_graph.hpp"
#include "model/model.hpp"
#include "replica/optimizer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace lockstep {

/// Scalars that travel with the gradients, summed over leaves. Floats; exact for what they hold.
enum class StepScalar : std::size_t {
    loss_sum,          ///< sum of per-sample losses divided by the step's samples
    requeue_wanted,    ///< > 0: some rank was asked to save and requeue
    interrupt_wanted,  ///< > 0: some rank was interrupted
    save_wanted,       ///< > 0: rank 0's clock or a user says that a checkpoint is due
    discard_wanted,    ///< > 0: a user wants the run to end without a checkpoint
    save_done,         ///< SaveVotes::done
    save_failed,       ///< SaveVotes::failed
    leaf_squares,      ///< of all leaves' gradients, each one's squared norm; see LeafNorms
    count,
};

/// Where a named tensor of the model lies in the flat vector.
struct FlatTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    FloatRange range;
};

/// Where a model's tensors lie in the one flat vector that ranks sum and update:
/// parameters, as backward finishes them, then state = float buffers, increments of integer
/// buffers, step scalars.
class ModelLayout {
  public:
    /// `order`: registration indices as backward finishes them; empty: reverse registration.
    explicit ModelLayout(const Model& model,
                         std::span<const std::size_t> order = {},
                         BucketLimits limits = {});

    const FlatLayout& flat() const { return flat_; }

    /// In the model's order; counters have one float, of their increment.
    const std::vector<FlatTensor>& parameters() const { return parameters_; }
    const std::vector<FlatTensor>& buffers() const { return buffers_; }
    const std::vector<FlatTensor>& counters() const { return counters_; }

    /// Scalars are summed, the state before them is averaged over leaves.
    std::size_t scalar(StepScalar which) const {
        return flat_.state().end - static_cast<std::size_t>(StepScalar::count) +
               static_cast<std::size_t>(which);
    }

  private:
    FlatLayout place(const Model& model, std::span<const std::size_t> order, BucketLimits limits);

    std::vector<FlatTensor> parameters_, buffers_, counters_;
    FlatLayout flat_;
};

/// Whether the squared norm of each leaf's gradient is added to StepScalar::leaf_squares.
enum class LeafNorms { ignore, measure };

/// A leaf's scalars, by StepScalar.
using LeafScalars = std::array<float, static_cast<std::size_t>(StepScalar::count)>;

/// The result of a leaf that was computed together with others.
struct LeafResult {
    LeafScalars wishes{};
    at::Tensor loss;  ///< on the model's device
};

/// Integer buffers by name.
using Counters = std::map<std::string, std::int64_t>;

/// All tensors of a checkpoint, by name, and the pieces of them that this rank owns. It loads
/// those, and saves them if its node's copy is the one that is saved. An update changes those in
/// the replica's memory, but no copy of a GPU's.
struct ReplicaTensors {
    std::vector<TensorMeta> metas{};
    std::vector<TensorPiece> pieces{};  ///< in the replica's memory, or in a copy of a GPU's
    std::size_t own_pieces = 0;   ///< pieces after these are on all ranks, and one rank saves them
    std::size_t frozen_from = 0;  ///< the first of `metas` that is a frozen parameter
    bool is_first_copy = true;
    std::shared_ptr<const void> memory{};  ///< the copy
    std::function<void()> wait{};          ///< of any thread, until the copy is there; empty: it is
};

/// Calls `ready` on the thread of backward() each time a gradient was accumulated into
/// `parameter.grad()`. Replaces an earlier hook; lives as long as the parameter.
void on_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> ready);

/// One step is: begin_step; for each own leaf begin_leaf, backward, end_leaf; finish; update;
/// publish. Every rank does these in this order, with all leaves that it has, or with
/// begin_together, backward, end_together for all leaves at once: the bits are the same.
class Replica {
  public:
    struct Parts {
        std::unique_ptr<Model> model;
        std::unique_ptr<const ModelLayout> layout;
        const TreePlan& plan;
        std::unique_ptr<Exchange> exchange;  ///< exchange of `layout` and `plan`
        OptimizerSettings optimizer;
        Communicator ranks;  ///< ranks of the exchange
        ProgressSettings progress;
        std::vector<double> rate_factors = {};  ///< factors of parameters; empty: 1
        at::Device device = at::kCPU;           ///< device of model and exchange
        UpdateLoops& loops = host_loops();      ///< loops for that device
    };
    explicit Replica(Parts parts);

    Model& model() { return *parts_.model; }

    void begin_step(LeafNorms norms);

    /// Begins the next own leaf, of `micro_batches` passes of backward, 0 if it has no samples.
    /// Buffers are as at the step's start, and backward adds its gradients to the leaf's.
    void begin_leaf(int micro_batches);

    /// Call between two passes of backward over one leaf.
    void next_micro_batch();

    /// Adds to a scalar of the current leaf.
    void add(StepScalar which, float value);

    /// Does the same for a number on the model's device that may still be computed.
    void add(StepScalar which, const at::Tensor& value);

    /// Ends the leaf. A parameter that no pass has reached has no gradient; the user is warned
    /// once.
    void end_leaf();

    /// Begins all own leaves at once, each of which has samples. Backward then gives parameters no
    /// gradients, see sums().
    void begin_together();

    /// `buffers`: their changes by forward. `results`: by own leaf.
    void end_together(const LeafBuffers& buffers, std::span<const LeafResult> results);

    /// Returns the slots for gradients of the current leaf, or leaves, that do not go through
    /// autograd.
    const LeafSums& sums() const { return *sums_; }

    /// Returns what sums() returns after begin_together(), at any time.
    LeafSums sums_together() const;
    ParameterPlaces places();

    /// Backward then reports no gradients, but adds their parameters to `reached`; the caller
    /// reports them by places().ready later. nullptr: the usual way.
    void hold_gradients(std::vector<std::size_t>* reached) { held_ = reached; }

    /// Replaces begin_step(): leaves are computed, and nothing is sent. sums_hash() returns the
    /// hash of their sums, and end_rehearsal() discards them.
    void begin_rehearsal();
    std::string sums_hash() const;
    void end_rehearsal() { restore_buffers(); }

    /// Collective. Waits for the sums over all leaves.
    void finish() { reducer_.finish(); }

    /// Collective. Updates the parameters that this rank owns, by gradients as `rule` scales them;
    /// parameters that no leaf of the step has reached stay. If `rule` withholds the update,
    /// weights, optimizer state, buffers and counters stay. `samples`: those of the step; buffers
    /// become their mean over the leaves with samples. The host does not wait for the GPU's
    /// decision.
    void update(UpdateStep step, const UpdateRule& rule, std::int64_t samples);

    /// Collective. Afterwards every rank computes with all updates.
    void publish();

    /// Collective, between steps. Exchanges the weights and their average: the model then computes
    /// with the other of the two. Does nothing if no average is kept.
    void swap_average();

    /// Returns the sum over all leaves, the same on all ranks, after publish().
    float scalar(StepScalar which) const { return told(parts_.layout->scalar(which)); }

    /// Returns the decision on the last update, the same bits on any number of ranks, after
    /// publish().
    const UpdateDecision& decision() const { return decision_; }

    /// Returns the tensors of initial weights, or of the end of a step.
    ReplicaTensors tensors();

    /// Returns the same without waiting for a GPU's copy, which goes beside the next step: the
    /// update of that step comes after it.
    ReplicaTensors tensors_to_come();

    /// Collective. Returns the model's counters, and as "optimizer.missed." with a parameter's name
    /// the number of updates that left it unchanged, if any.
    Counters counters() const;

    /// Returns XXH3-128 over all parameters, then float buffers, then the model's counters, then
    /// frozen parameters that no file has, each in the model's order with its name. Any rank;
    /// between steps.
    std::string hash() const;

    /// Collective, between steps and before the first: call it after pieces of tensors() were
    /// filled. Errors: E304 if `counters` lack one.
    void start(const Counters& counters);

    /// Returns a text for people: size, and transport of gradients.
    std::string description() const;

    /// Returns the memory that this replica has at present; a GPU's, if it is there.
    ModelBytes bytes() const;

    /// Returns the seconds that this rank waited for others, since the last call.
    double take_wait_s() { return parts_.exchange->take_wait_s(); }

    /// Returns Exchange::take_links(); ranks are those of the exchange.
    std::vector<LinkTimes> take_links() { return parts_.exchange->take_links(); }

    /// Returns the seconds since the last call in which backward's hooks and the ends of leaves
    /// summed instead of a communication thread.
    double take_launch_s() { return reducer_.take_launch_s(); }

    /// Returns for how long buckets travelled since the last call, and for how much of that steps
    /// waited.
    OverlapTimes take_overlap() { return reducer_.take_overlap(); }

  private:
    /// Of the model's tensors, in a flat vector.
    struct Views {
        std::vector<at::Tensor> parameters, buffers, counters;
    };
    /// This rank's part of a bucket of parameters, and its begin in the optimizer's vectors.
    struct OwnStripe {
        FloatRange range;
        std::size_t first = 0;
    };

    /// The begin of a piece's gradients in a bucket's sums.
    struct GradientPlace {
        std::size_t bucket = 0, offset = 0;
    };

    /// What the replica's own memory does not have.
    struct HostCopy {
        at::Tensor mirror;                   ///< of a GPU's vectors, page-locked: see mirrored()
        std::optional<c10::Event> mirrored;  ///< the mirror is whole
        std::vector<at::Tensor> kept;        ///< frozen parameters
    };

    /// Floats on a GPU, and their place in a mirror.
    struct Mirrored {
        at::Tensor here;
        std::size_t first = 0;
    };

    bool is_on_host() const { return parts_.device.is_cpu(); }
    at::Tensor view_of(float* flat, const FlatTensor& place) const;
    at::Tensor scalar_view(float* at) const { return view_of(at, {"", {1}, {0, 1}}); }
    std::span<const float> on_host(const float* from, std::size_t count) const;
    std::vector<Mirrored> mirrored() const;
    void begin_mirror();
    FloatRange told_state() const;
    float told(std::size_t place) const;
    void cut_pieces();
    void take_initial_weights();
    NamedTensors saved_frozen() const;
    bool keeps_average() const { return parts_.optimizer.average_decay != 0; }
    void install_hooks();
    void ready(std::size_t parameter);
    double squares_of(std::size_t parameter) const;
    const Views& views_of(float* flat);
    FloatRange state() const { return parts_.layout->flat().state(); }
    std::size_t averaged_end() const { return parts_.layout->scalar(StepScalar::loss_sum); }
    std::vector<float*> slots(int count) const;
    void lend_slot();
    void restore_buffers();
    void store_buffers(const std::vector<at::Tensor>& buffers,
                       const std::vector<at::Tensor>& increments);
    std::vector<at::Tensor> increments() const;
    void send_starts();
    void mark_missing(std::span<float* const> slots, int leaves);
    void set_marks();
    Counters model_counters() const;
    const UpdateDecision* decide(const UpdateRule& rule);
    void update_state(std::int64_t samples);

    Parts parts_;
    FlatMemory& memory_;
    float* values_;  ///< shared by all ranks; parameters are views of it
    Reducer reducer_;
    std::vector<at::Tensor> parameters_, buffers_, counters_;  ///< the model's own
    std::vector<std::int64_t> at_start_;   ///< by counter: its value at the start of the step
    at::Tensor host_starts_, all_starts_;  ///< the same, page-locked and on the model's device
    std::vector<at::Tensor> starts_;       ///< views of the latter, by counter
    std::vector<OwnStripe> stripes_;       ///< by bucket, without the state's
    std::size_t owned_ = 0;                ///< floats of the stripes
    std::vector<at::Tensor> state_;  ///< the optimizer's state for the stripes, one after another
    std::vector<ParameterPiece> pieces_;    ///< pieces of the stripes
    std::vector<GradientPlace> gradients_;  ///< by piece
    std::vector<int>
        missed_leaves_;  ///< by parameter: number of own leaves of this step without it
    std::vector<std::int64_t> missed_;  ///< by parameter: see ParameterPiece, for own pieces
    std::map<float*, Views> views_;     ///< by vector
    float* slot_ = nullptr;             ///< slot of the current leaf
    std::optional<LeafSums> sums_;      ///< sums of the current leaf, or of all
    bool has_samples_ = false, reported_missing_ = false;
    LeafNorms norms_ = LeafNorms::ignore;         ///< setting of the current step
    int passes_left_ = 0;                         ///< passes of backward over the current leaf
    std::vector<std::size_t>* held_ = nullptr;    ///< see hold_gradients()
    std::vector<std::optional<double>> squares_;  ///< by parameter, for the current leaf's gradient
    const UpdateDecision* decided_ = nullptr;     ///< in memory of the loops, if it was late
    UpdateDecision decision_;                     ///< the same, after publish()
    /// On the host, page-locked: *decided_, then told_state() as published, then marks of pieces.
    at::Tensor told_;
    std::shared_ptr<HostCopy> lent_;   ///< behind tensors(), until the next update or start()
    mutable std::vector<float> seen_;  ///< temporary copy of a GPU's vector on the host
};

}  // namespace lockstep
