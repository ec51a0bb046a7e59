// SPDX-License-Identifier: Apache-2.0
// One step, as each rank sees it:
//
//     for each own leaf     buffers as at the step's start -> seed by leaf -> forward -> backward
//                           |                                                       | hooks
//                           +-- the leaf's place in the replica: gradients, loss <--+
//     finish                the sum over all V leaves, of what this rank owns
//     skip?                 with --on-nonfinite skip or fp16, agreed on: nothing is updated then
//     norm, clip            exact, so that no cut of the gradient shows
//     update                what this rank owns: values := optimizer(values, sum)
//     publish               everybody sees all values; the step's loss and wishes are among them
//
// Whatever ranks must agree on (loss, "save now", "stop") travels as scalars in the same sum: no
// further message, and all ranks read the same answer after the same step.
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
// train/replica/gradient_hooks_test.cpp, train/schedule/train_step_test.cpp (skipped steps),
// comm/reducer_test.cpp.

#include "schedule/train_step.hpp"

#include "lockstep/core/random.hpp"

#include "replica/arithmetic.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

// Dropout and kin of one leaf depend on (seed, step, leaf), never on the rank that computes it.
void seed_leaf(std::uint64_t seed, std::int64_t step, int leaf) {
    CounterRandom random(
        Purpose::leaf_generator,
        {seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(leaf)});
    torch::manual_seed(random.next() >> 1);
}

// Micro-batch `part` of `parts` of a leaf: near-equal, in order.
LeafSamples part_of(const LeafSamples& leaf, int part, int parts) {
    const std::int64_t rows = leaf.inputs.front().tensor.size(0);
    const std::int64_t begin = rows * part / parts;
    return leaf.part(begin, rows * (part + 1) / parts - begin);
}

// Pascanu et al., https://arxiv.org/abs/1211.5063, with PyTorch's guard against a norm of zero.
float clip_scale(double norm, double limit) {
    return limit > 0 ? static_cast<float>(std::min(1.0, limit / (norm + 1e-6))) : 1;
}

}  // namespace

StepOutcome TrainStep::run(const Batch& batch,
                           std::int64_t step,
                           double rate,
                           const StepWishes& wishes) {
    Replica& replica = parts_.replica;
    const bool measured = measures(batch, step);
    replica.begin_step(measured ? LeafNorms::measure : LeafNorms::ignore);
    for (const LeafRows& leaf : batch.leaves) {
        replica.begin_leaf(micro_batches(leaf));
        if (&leaf == &batch.leaves.front()) add_wishes(wishes);
        if (leaf.rows > 0) compute_leaf(batch, leaf, step);
        replica.end_leaf();
    }
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        replica.finish();
    }
    const bool skips = must_skip();
    const bool needs_norm = (settings_.clip_norm > 0 || measured) && !skips;
    const double norm = needs_norm ? replica.gradient_norm() / parts_.scale.factor : 0;
    if (skips)
        replica.skip();
    else
        update(batch, rate, norm);
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        replica.publish();
    }
    parts_.clock.reassign(Phase::comm, Phase::wait, replica.take_wait_s());
    StepOutcome done = outcome(norm);
    done.is_skipped = skips;
    if (measured && !skips) done.norms = norms(norm);
    // A loss that is not finite by itself says nothing of the scale.
    if (settings_.scales_loss && std::isfinite(done.loss))
        parts_.scale = next_scale(parts_.scale, skips);
    return done;
}

// `norm`: what clipping compares.
void TrainStep::update(const Batch& batch, double rate, double norm) {
    const PhaseScope scope(parts_.clock, Phase::update);
    const auto scale = static_cast<float>(parts_.scale.factor);
    parts_.replica.update({.number = ++parts_.updates,
                           .rate = rate,
                           .gradient_scale = clip_scale(norm, settings_.clip_norm) / scale},
                          batch.samples_in_step);
}

bool TrainStep::measures(const Batch& batch, std::int64_t step) const {
    return settings_.norms_every > 0 && settings_.virtual_ranks > 1 &&
           (step + 1) % settings_.norms_every == 0 && batch.samples_in_step == settings_.batch;
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

bool TrainStep::must_skip() const {
    if (settings_.on_nonfinite == NonFinite::stop && !settings_.scales_loss) return false;
    const PhaseScope scope(parts_.clock, Phase::comm);
    return !parts_.replica.is_finite();
}

void TrainStep::compute_leaf(const Batch& batch, const LeafRows& leaf, std::int64_t step) {
    check_arithmetic(settings_.threads);
    seed_leaf(settings_.seed, step, leaf.leaf);
    const LeafSamples samples = [&] {
        const PhaseScope scope(parts_.clock, Phase::data);
        return parts_.input.read(batch, leaf);
    }();
    for (int part = 0; part < micro_batches(leaf); ++part) {
        if (part > 0) parts_.replica.next_micro_batch();
        const at::Tensor loss =
            forward(part_of(samples, part, micro_batches(leaf)), batch.samples_in_step);
        const PhaseScope scope(parts_.clock, Phase::backward);
        (settings_.scales_loss ? loss * parts_.scale.factor : loss).backward();
    }
}

at::Tensor TrainStep::forward(const LeafSamples& part, std::int64_t samples) {
    const PhaseScope scope(parts_.clock, Phase::forward);
    const NamedTensors outputs = parts_.replica.model().forward(part.inputs);
    const at::Tensor loss = parts_.task.loss(outputs, part) / static_cast<double>(samples);
    parts_.replica.add(StepScalar::loss_sum, loss.item<float>());
    return loss;
}

// A short leaf may have fewer samples than the run has micro-batches.
int TrainStep::micro_batches(const LeafRows& leaf) const {
    return std::min(settings_.micro_batches, static_cast<int>(leaf.rows));
}

void TrainStep::add_wishes(const StepWishes& wishes) {
    const auto add = [&](StepScalar which, bool is_wished) {
        parts_.replica.add(which, is_wished ? 1.0F : 0.0F);
    };
    add(StepScalar::requeue_wanted, wishes.requeue);
    add(StepScalar::interrupt_wanted, wishes.interrupt);
    add(StepScalar::save_wanted, wishes.save);
    add(StepScalar::discard_wanted, wishes.discard);
}

StepOutcome TrainStep::outcome(double norm) const {
    const auto wished = [&](StepScalar which) { return parts_.replica.scalar(which) > 0; };
    return {.loss = parts_.replica.scalar(StepScalar::loss_sum),
            .gradient_norm = norm,
            .agreed = {.requeue = wished(StepScalar::requeue_wanted),
                       .interrupt = wished(StepScalar::interrupt_wanted),
                       .save = wished(StepScalar::save_wanted),
                       .discard = wished(StepScalar::discard_wanted)}};
}

}  // namespace lockstep
