// SPDX-License-Identifier: Apache-2.0
// One step, as each rank sees it:
//
//     for each own leaf     buffers as at the step's start -> seed by leaf -> forward -> backward
//                           |                                                       | hooks
//                           +-- the leaf's place in the replica: gradients, loss <--+
//     or all at once        the same bits, where a rehearsal has shown them (leaf_passes.hpp)
//     finish                the sum over all V leaves, of what this rank owns
//     skip?                 with --on-nonfinite skip or fp16, agreed on: nothing is updated then
//     copied?               a save in flight may still read values and optimizer state
//     norm, clip            exact, so that no cut of the gradient shows
//     update                what this rank owns: values := optimizer(values, sum)
//     publish               everybody sees all values; the step's loss and wishes are among them
//
// On a GPU all work from finish on is enqueued before the host waits, once: then it reads loss and
// wishes, the norm, and whether the step was skipped.
//
// All values on which ranks must agree (loss, "save now", "stop") travel as scalars in the same
// sum: no further message is needed, and all ranks read the same answer after the same step.
//
// What must never happen:
// - Something of a leaf depends on its rank, or on the leaf before it: random numbers are keyed by
//   (seed, step, leaf).
// - A step that is skipped counts as an update: Adam's bias correction would be that of moments
//   that it has not got.
// - A wish is counted per leaf; it is put into the first one only.
// - A rank leaves between begin_step() and publish() other than by an error that ends all: the
//   others would wait. Hence decisions are taken only from the published outcome.
//
// Tested: e2e/verify_test.cpp (the same bits on any number of ranks, with clipping),
// soak/equal_bits (with dropout and batch statistics), e2e/resume_test.cpp,
// train/replica/replica_test.cpp, train/schedule/train_step_test.cpp (skipped steps),
// simcuda/feed_test.cpp (what a GPU does with the time),
// comm/reducer_test.cpp.

#include "schedule/train_step.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"

#include "replica/numerics.hpp"

#include <algorithm>
#include <cmath>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

// Dropout and similar operators of one leaf depend on (seed, step, leaf), never on the rank that
// computes it.
std::uint64_t leaf_seed(std::uint64_t seed, std::int64_t step, int leaf) {
    CounterRandom random(
        Purpose::leaf_generator,
        {seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(leaf)});
    return random.next() >> 1;
}

LeafScalars scalars_of(const StepWishes& wishes) {
    LeafScalars scalars{};
    const auto set = [&](StepScalar which, int value) {
        scalars[static_cast<std::size_t>(which)] = static_cast<float>(value);
    };
    set(StepScalar::requeue_wanted, wishes.requeue);
    set(StepScalar::interrupt_wanted, wishes.interrupt);
    set(StepScalar::save_wanted, wishes.save);
    set(StepScalar::discard_wanted, wishes.discard);
    set(StepScalar::save_done, wishes.votes.done);
    set(StepScalar::save_failed, wishes.votes.failed);
    return scalars;
}

}  // namespace

void DevicePhases::begin_step() {
    if (device_.is_cpu()) return;
    used_ = 0;
    before_ = clock_.seconds();
    mark(Phase::other);
    listener_.emplace(clock_, [this](const PhaseMark& begun) { mark(begun.phase); });
}

void DevicePhases::mark(Phase phase) {
    if (used_ == marks_.size())
        marks_.push_back({phase, c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)});
    Mark& next = marks_[used_];
    next.phase = phase;
    try {
        next.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
        ++used_;
    } catch (const c10::Error&) {
        // The GPU is lost, which whoever computes on it says; scopes end while they do.
    }
}

void DevicePhases::end_step() {
    if (device_.is_cpu()) return;
    mark(Phase::other);
    listener_.reset();
    if (used_ == 0) return;
    marks_[used_ - 1].event.synchronize();
    PhaseSeconds measured{};
    for (std::size_t i = 0; i + 1 < used_; ++i)
        measured[marks_[i].phase] += marks_[i].event.elapsedTime(marks_[i + 1].event) / 1000;
    clock_.correct(before_, measured, Phase::copy);
}

StepOutcome TrainStep::run(SampleFeed& feed,
                           std::int64_t step,
                           double rate,
                           const StepWishes& wishes) {
    Replica& replica = parts_.replica;
    device_phases_.begin_step();
    compute(feed, step, wishes);
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        replica.finish();
    }
    if (parts_.before_update) parts_.before_update();
    update(feed.batch(), step, rate);
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        replica.publish();
    }
    parts_.clock.reassign(Phase::comm, Phase::wait, replica.take_wait_s());
    device_phases_.end_step();
    const StepOutcome done = outcome(feed.batch(), step);
    if (!done.is_skipped) ++parts_.updates;
    // A loss that is not finite by itself says nothing of the scale.
    if (scales_loss() && std::isfinite(done.loss))
        parts_.scale = next_scale(parts_.scale, done.is_skipped);
    return done;
}

// Forward and backward are under way afterwards; a GPU has them before it. Gradients are cleared
// and merged at leaves' ends, too, and sums begin in hooks and there.
void TrainStep::compute(SampleFeed& feed, std::int64_t step, const StepWishes& wishes) {
    const bool measured = measures(feed.batch(), step);
    const LeafScalars wished = scalars_of(wishes);
    {
        const PhaseScope scope(parts_.clock, Phase::backward);
        parts_.replica.begin_step(measured ? LeafNorms::measure : LeafNorms::ignore);
        if (measured || !compute_together(feed, step, wished)) compute_leaves(feed, step, wished);
    }
    parts_.clock.reassign(Phase::backward, Phase::comm, parts_.replica.take_launch_s());
    const PhaseScope scope(parts_.clock, Phase::data);
    feed.look_ahead();
}

void TrainStep::update(const Batch& batch, std::int64_t step, double rate) {
    const PhaseScope scope(parts_.clock, Phase::update);
    const bool skips = settings_.on_nonfinite != NonFinite::stop || scales_loss();
    parts_.replica.update({.number = parts_.updates + 1, .rate = rate},
                          {.loss_scale = parts_.scale.factor,
                           .clip_norm = settings_.clip_norm,
                           .measures_norm = measures(batch, step),
                           .skips_nonfinite = skips},
                          batch.samples_in_step);
}

bool TrainStep::measures(const Batch& batch, std::int64_t step) const {
    return settings_.noise_scale_every > 0 && settings_.virtual_ranks > 1 &&
           (step + 1) % settings_.noise_scale_every == 0 &&
           batch.samples_in_step == settings_.batch;
}

// Leaves' losses were divided by the step's samples, V times too many for a mean over a leaf's.
GradientNorms TrainStep::norms(double step_norm) const {
    const double leaves = settings_.virtual_ranks, scale = parts_.scale.factor;
    const double sum = parts_.replica.scalar(StepScalar::leaf_squares) / (scale * scale);
    const auto samples = static_cast<double>(settings_.batch);
    return {.leaf_squares = sum * leaves,
            .step_squares = step_norm * step_norm,
            .leaf_samples = samples / leaves,
            .step_samples = samples};
}

void TrainStep::compute_leaves(SampleFeed& feed, std::int64_t step, const LeafScalars& wished) {
    const Batch& batch = feed.batch();
    for (const LeafRows& leaf : batch.leaves) {
        parts_.replica.begin_leaf(micro_batches(leaf));
        if (&leaf == &batch.leaves.front())
            for (std::size_t i = 0; i < wished.size(); ++i)
                parts_.replica.add(static_cast<StepScalar>(i), wished[i]);
        if (leaf.rows > 0) {
            check_arithmetic(settings_.threads);
            torch::manual_seed(leaf_seed(settings_.seed, step, leaf.leaf));
            passes_.compute(read(feed, leaf),
                            micro_batches(leaf),
                            terms(batch.samples_in_step),
                            capture_of(batch, leaf));
        }
        parts_.replica.end_leaf();
    }
    tell_of_capture(step);
}

// Sums of the last leaf's gradients run while its backward does, unless it is replayed.
Capture TrainStep::capture_of(const Batch& batch, const LeafRows& leaf) const {
    const bool is_waited_for = parts_.ranks > 1 && &leaf == &batch.leaves.back();
    return is_waited_for && !captures_all_ ? Capture::no : Capture::yes;
}

// Reports what ended it after the rehearsal.
void TrainStep::tell_of_capture(std::int64_t step) {
    const std::string why = passes_.capture_obstacle();
    if (why.empty()) return;
    here(Level::warn, "graph: leaves are computed as always from step {} on: {}", step + 1, why);
    passes_.choose_capture({});
}

void TrainStep::choose_capture(std::optional<CaptureWay> way, bool captures_all) {
    captures_all_ = captures_all;
    if (way == CaptureWay::one_by_one) is_together_ = false;
    passes_.choose_capture(way);
}

// Returns true on success.
bool TrainStep::compute_together(SampleFeed& feed, std::int64_t step, const LeafScalars& wished) {
    const Batch& batch = feed.batch();
    const bool is_whole = batch.samples_in_step == settings_.batch;
    if (!is_together_ || !is_whole) return false;
    check_arithmetic(settings_.threads);
    std::vector<LeafSamples> samples;
    std::vector<std::uint64_t> seeds;
    for (const LeafRows& leaf : batch.leaves) {
        samples.push_back(read(feed, leaf));
        seeds.push_back(leaf_seed(settings_.seed, step, leaf.leaf));
    }
    const std::string why = passes_.compute_together(
        {joined(samples), cut(), seeds, terms(batch.samples_in_step)}, wished, Capture::yes);
    tell_of_capture(step);
    if (why.empty()) return true;
    here(Level::warn, "leaves: computed one by one from step {} on: {}", step + 1, why);
    is_together_ = false;
    return false;
}

std::string TrainStep::rehearse(std::uint64_t most_bytes) {
    std::string why = passes_.rehearse(cut(), terms(settings_.batch), most_bytes);
    is_together_ = why.empty();
    return why;
}

LeafSamples TrainStep::read(SampleFeed& feed, const LeafRows& leaf) {
    const PhaseScope scope(parts_.clock, Phase::data);
    return feed.read(leaf);
}

LossTerms TrainStep::terms(std::int64_t samples) const {
    return {.samples = samples, .scale = scales_loss() ? parts_.scale.factor : 1};
}

// A short leaf may have fewer samples than the run has micro-batches.
int TrainStep::micro_batches(const LeafRows& leaf) const {
    return std::min(settings_.micro_batches, static_cast<int>(leaf.rows));
}

StepOutcome TrainStep::outcome(const Batch& batch, std::int64_t step) const {
    const UpdateDecision& decision = parts_.replica.decision();
    const bool is_skipped = decision.is_withheld != 0;
    const auto sum = [&](StepScalar which) {
        return static_cast<int>(parts_.replica.scalar(which));
    };
    const auto wished = [&](StepScalar which) { return sum(which) > 0; };
    StepOutcome done{.loss = without_sign_of_nan(parts_.replica.scalar(StepScalar::loss_sum)),
                     .gradient_norm = decision.norm,
                     .agreed = {.requeue = wished(StepScalar::requeue_wanted),
                                .interrupt = wished(StepScalar::interrupt_wanted),
                                .save = wished(StepScalar::save_wanted),
                                .discard = wished(StepScalar::discard_wanted),
                                .votes = {.done = sum(StepScalar::save_done),
                                          .failed = sum(StepScalar::save_failed)}},
                     .is_skipped = is_skipped};
    if (measures(batch, step) && !is_skipped) done.norms = norms(decision.norm);
    return done;
}

}  // namespace lockstep
