// SPDX-License-Identifier: Apache-2.0
// One step of data-parallel training.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "model/model.hpp"
#include "replica/replica.hpp"
#include "schedule/leaf_passes.hpp"
#include "task/input.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace lockstep {

/// Requests of this rank to all ranks at the end of the step.
struct StepWishes {
    bool requeue = false, interrupt = false, save = false, discard = false;
    SaveVotes votes{};  ///< on the save in flight; agreed: their sums
};

/// The result of a step, the same on all ranks.
struct StepOutcome {
    double loss = 0;                       ///< mean over the step's samples
    double gradient_norm = 0;              ///< before clipping; 0 without clipping
    StepWishes agreed;                     ///< true if any rank wished it
    bool is_skipped = false;               ///< something was not finite, and no value has changed
    std::optional<GradientNorms> norms{};  ///< set if they are measured
};

/// What a GPU does with the time of a step: the host, which is ahead of it, cannot tell. Follows a
/// clock: where a phase begins on the host, an event is put into the stream that computes. On a CPU
/// it does nothing.
class DevicePhases {
  public:
    /// `clock` outlives this.
    DevicePhases(PhaseClock& clock, c10::Device device) : clock_(clock), device_(device) {}

    void begin_step();

    /// When the stream has done the step: its phases are on the clock what they took there. What
    /// passed before the stream began, because its samples were not there yet, is Phase::copy.
    void end_step();

  private:
    struct Mark {
        Phase phase;
        c10::Event event;
    };

    void mark(Phase phase);

    PhaseClock& clock_;
    c10::Device device_;
    std::optional<PhaseListener> listener_;  ///< during a step
    PhaseSeconds before_{};
    std::vector<Mark> marks_;
    std::size_t used_ = 0;  ///< of marks_, whose events are used again
};

/// Borrows everything; see run().
class TrainStep {
  public:
    struct Parts {
        const TrainSettings& settings;  ///< V is known
        Replica& replica;
        const ModelShape& shape;  ///< shape of the model's inputs
        const Task& task;
        PhaseClock& clock;
        LossScale& scale;       ///< scale of the next step
        std::int64_t& updates;  ///< number that the replica has taken
        int leaves = 1;         ///< number of this rank's leaves
        int ranks = 1;
        /// Called when the gradients are summed and nothing is updated yet.
        std::function<void()> before_update = {};
    };
    explicit TrainStep(Parts parts)
        : parts_(parts),
          settings_(parts.settings),
          passes_(parts.replica, parts.task, parts.shape, parts.clock),
          device_phases_(parts.clock, device_of(parts.replica.model())) {}

    /// Call before the first step. Tests whether this rank's leaves, if they have more than three
    /// samples each, can be computed at once within `most_bytes`; run() then does so. Returns the
    /// obstacle, see LeafPasses::rehearse(); "": none.
    [[nodiscard]] std::string rehearse(std::uint64_t most_bytes);

    /// Returns the speed after that, if there was no obstacle: see LeafPasses::speed().
    std::optional<LeafSpeed> leaf_speed() { return passes_.speed(cut(), terms(settings_.batch)); }

    /// Call before the first step: see LeafPasses::leaf_hash(). Of a leaf's first micro-batch.
    std::string leaf_hash() {
        const std::int64_t rows = std::max<std::int64_t>(cut().rows / settings_.micro_batches, 1);
        return passes_.leaf_hash(rows, terms(settings_.batch));
    }

    /// Call before the first step on a GPU: see LeafPasses::rehearse_capture().
    CaptureVerdict rehearse_capture(const MakeDeviceGraph& make, CaptureWay way) {
        return passes_.rehearse_capture(
            make, way, cut(), settings_.micro_batches, terms(settings_.batch));
    }

    /// Call after the last of these. Leaves that are recorded one by one are computed in this way;
    /// `captures_all`: also a leaf whose gradients other ranks wait for.
    void choose_capture(std::optional<CaptureWay> way, bool captures_all);

    bool is_together() const { return is_together_; }

    /// Collective. Computes this rank's leaves of the batch of `feed` as step `step` (from 0) with
    /// learning rate `rate`, sums gradients over all leaves and updates the stripes that this rank
    /// owns.
    StepOutcome run(SampleFeed& feed, std::int64_t step, double rate, const StepWishes& wishes);

  private:
    void compute(SampleFeed& feed, std::int64_t step, const StepWishes& wishes);
    void compute_leaves(SampleFeed& feed, std::int64_t step, const LeafScalars& wished);
    bool compute_together(SampleFeed& feed, std::int64_t step, const LeafScalars& wished);
    LeafSamples read(SampleFeed& feed, const LeafRows& leaf);
    bool scales_loss() const { return settings_.precision == Precision::fp16; }
    LossTerms terms(std::int64_t samples) const;
    LeafCut cut() const { return {parts_.leaves, settings_.batch / settings_.virtual_ranks}; }
    int micro_batches(const LeafRows& leaf) const;
    Capture capture_of(const Batch& batch, const LeafRows& leaf) const;
    void tell_of_capture(std::int64_t step);
    void update(const Batch& batch, std::int64_t step, double rate);
    bool measures(const Batch& batch, std::int64_t step) const;
    GradientNorms norms(double step_norm) const;
    StepOutcome outcome(const Batch& batch, std::int64_t step) const;

    Parts parts_;
    const TrainSettings& settings_;
    LeafPasses passes_;
    DevicePhases device_phases_;
    bool is_together_ = false, captures_all_ = false;
};

}  // namespace lockstep
