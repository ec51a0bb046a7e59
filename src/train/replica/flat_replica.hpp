// SPDX-License-Identifier: Apache-2.0
// A replica in flat vectors: in host memory, where ranks of a node share one copy of parameters and
// optimizer state, or in a GPU's.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/reducer.hpp"

#include "replica/model_layout.hpp"
#include "replica/replica.hpp"
#include "replica/update_loops.hpp"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

class FlatReplica : public Replica {
  public:
    struct Parts {
        std::unique_ptr<Model> model;
        std::unique_ptr<const ModelLayout> layout;
        const TreePlan& plan;
        std::unique_ptr<Exchange> exchange;  ///< of `layout` and `plan`
        std::unique_ptr<Optimizer> optimizer;
        Communicator ranks;  ///< those of the exchange
        ProgressSettings progress;
        at::Device device = at::kCPU;       ///< of model and exchange
        UpdateLoops& loops = host_loops();  ///< of that device
    };
    explicit FlatReplica(Parts parts);

    Model& model() override { return *parts_.model; }
    void begin_step(LeafNorms norms) override;
    void begin_leaf(int micro_batches) override;
    void next_micro_batch() override;
    void add(StepScalar which, float value) override;
    void add(StepScalar which, const at::Tensor& value) override;
    void end_leaf() override;
    void begin_together() override;
    void end_together(const LeafScope& scope, std::span<const LeafResult> results) override;
    const LeafSums& sums() const override { return *sums_; }
    ParameterPlaces places() override;
    void hold_gradients(std::vector<std::size_t>* reached) override { held_ = reached; }
    void begin_rehearsal() override;
    std::string sums_hash() const override;
    void end_rehearsal() override { restore_buffers(); }
    void finish() override { reducer_.finish(); }
    void update(UpdateStep step, const UpdateRule& rule, std::int64_t samples) override;
    void publish() override;
    void swap_average() override;
    float scalar(StepScalar which) const override;
    const UpdateDecision& decision() const override { return decision_; }
    ReplicaTensors tensors() override;
    Counters counters() const override;
    std::string hash() const override;
    void start(const Counters& counters) override;
    std::string description() const override;
    double take_launch_s() override { return reducer_.take_launch_s(); }
    double take_wait_s() override { return parts_.exchange->take_wait_s(); }
    std::vector<LinkTimes> take_links() override { return parts_.exchange->take_links(); }
    OverlapTimes take_overlap() override { return reducer_.take_overlap(); }

  private:
    struct Counter {
        at::Tensor tensor;
        std::int64_t at_start = 0;  ///< of the step
    };
    /// This rank's part of a bucket of parameters, and where it begins in the optimizer's vectors.
    struct OwnStripe {
        FloatRange range;
        std::size_t first = 0;
    };

    /// Where in a bucket's sums a piece's gradients begin.
    struct GradientPlace {
        std::size_t bucket = 0, offset = 0;
    };

    /// Flat vectors as the host reads and writes them.
    struct HostVectors {
        float* values = nullptr;
        std::vector<float*> state;
    };

    bool is_on_host() const { return parts_.device.is_cpu(); }
    at::Tensor view_of(float* flat, const FlatTensor& place) const;
    at::Tensor scalar_view(float* at) const;
    std::span<const float> on_host(const float* from, std::size_t count) const;
    HostVectors host_vectors();
    void take_host_vectors();
    void read_told();
    FloatRange told_state() const;
    float told(std::size_t place) const;
    void cut_pieces();
    void take_initial_weights();
    NamedTensors saved_frozen() const;
    void begin_average();
    bool keeps_average() const;
    void install_hooks();
    void ready(std::size_t parameter);
    double squares_of(std::size_t parameter) const;
    double leaf_squares() const;
    const std::vector<at::Tensor>& gradient_views(float* slot);
    FloatRange state() const { return parts_.layout->flat().state(); }
    std::size_t averaged_end() const { return parts_.layout->averaged().end; }
    void lend_slot();
    void restore_buffers();
    void take_buffers(const LeafScope& scope, std::int64_t leaf);
    void store_buffers();
    void mark_missing(std::span<float* const> slots, int leaves);
    bool reaches(std::size_t parameter) const;
    void set_marks();
    void count_missed();
    std::vector<std::int64_t> all_missed() const;
    Counters model_counters() const;
    const UpdateDecision* decide(const UpdateRule& rule);
    void update_state(std::int64_t samples);

    Parts parts_;
    FlatMemory& memory_;
    float* values_;  ///< what all ranks see; parameters are views of it
    Reducer reducer_;
    std::vector<at::Tensor> parameters_, buffers_;  ///< the model's own
    std::vector<Counter> counters_;
    std::vector<OwnStripe> stripes_;        ///< by bucket, but the state's
    std::vector<at::Tensor> state_;         ///< the optimizer's, of the stripes one after another
    std::vector<ParameterPiece> pieces_;    ///< of the stripes
    std::vector<GradientPlace> gradients_;  ///< by piece
    std::vector<int> missed_leaves_;        ///< by parameter: own leaves of this step without it
    std::vector<std::int64_t> missed_;      ///< by parameter: see ParameterPiece, of own pieces
    std::map<float*, std::vector<at::Tensor>> views_;  ///< by slot
    float* slot_ = nullptr;                            ///< of the current leaf
    std::optional<LeafSums> sums_;                     ///< of the current leaf, or of all
    bool has_samples_ = false, reported_missing_ = false;
    LeafNorms norms_ = LeafNorms::ignore;         ///< of the current step
    int passes_left_ = 0;                         ///< of backward over the current leaf
    std::vector<std::size_t>* held_ = nullptr;    ///< see hold_gradients()
    std::vector<std::optional<double>> squares_;  ///< by parameter, of the current leaf's gradient
    const UpdateDecision* decided_ = nullptr;     ///< in memory of the loops, if it was late
    UpdateDecision decision_;                     ///< the same, after publish()
    /// To the host, page-locked: *decided_, then told_state() as published, then marks of pieces.
    at::Tensor told_;
    std::vector<float> mirror_;        ///< of a GPU's vectors, while tensors() are lent
    std::vector<at::Tensor> kept_;     ///< frozen parameters on the host, meanwhile
    mutable std::vector<float> seen_;  ///< of a GPU's, by the host, for a moment
};

}  // namespace lockstep
