// SPDX-License-Identifier: Apache-2.0
// One step, as each rank sees it:
//
//     for each own leaf     buffers as at the step's start -> seed by leaf -> forward -> backward
//                           |                                                       | hooks
//                           +-- slot of the reducer: gradients, buffers, loss <-----+
//     finish                the sum over all V leaves, of this rank's stripes
//     norm, clip            exact, so that no cut of the stripes shows
//     update                own stripes only: values := optimizer(values, sum)
//     publish               everybody sees all values; the step's loss and wishes are among them
//
// Whatever ranks must agree on (loss, "save now", "stop") travels as scalars in the same
// sum: no further message, and all ranks read the same answer after the same step.
//
// What must never happen:
// - Something of a leaf depends on its rank, or on the leaf before it: random numbers are keyed by
//   (seed, step, leaf), and running statistics start each leaf from the step's start.
// - A leaf's state is stored after its last backward began: the state bucket may already travel.
// - A wish is counted per leaf; it is put into the first one only, one slot a rank.
// - A norm counts parameters twice: nodes hold equal copies, and only the first copy is added.
// - A rank leaves between begin_step() and publish() other than by an error that ends all: the
//   others would wait. Hence decisions are taken only from the published outcome.
//
// Tested: e2e/verify_test.cpp (the same bits on any number of ranks, with clipping, dropout and
// batch statistics), e2e/resume_test.cpp, train/replica/gradient_hooks_test.cpp,
// comm/reducer_test.cpp.

#include "schedule/train_step.hpp"

#include "lockstep/comm/exact_sum.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/random.hpp"

#include "replica/arithmetic.hpp"
#include "replica/gradient_hooks.hpp"

#include <algorithm>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
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

TrainStep::TrainStep(Parts parts, const StepSettings& settings)
    : parts_(parts), settings_(settings) {
    install_hooks();
}

void TrainStep::install_hooks() {
    const NamedTensors parameters = parts_.model.model().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
        on_gradient(parameters[i].tensor, [this, i](const at::Tensor&) {
            expect(parts_.model.gradient_in_place(i), "gradients stay in their flat vector");
            parts_.reducer.add(i);
        });
}

StepOutcome TrainStep::run(const Batch& batch,
                           std::int64_t step,
                           double rate,
                           const StepWishes& wishes) {
    parts_.reducer.begin_step();
    for (const LeafRows& leaf : batch.leaves) {
        float* slot = parts_.reducer.begin_leaf(std::max(micro_batches(leaf), 1));
        if (&leaf == &batch.leaves.front()) add_wishes(wishes, slot);
        if (leaf.rows > 0) compute_leaf(batch, leaf, step, slot);
        parts_.reducer.end_leaf();
        if (leaf.rows > 0) report_missing();
    }
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        parts_.reducer.finish();
    }
    const double norm = settings_.clip_norm > 0 ? gradient_norm() : 0;
    update({step + 1, rate, clip_scale(norm, settings_.clip_norm)}, batch.samples_in_step);
    {
        const PhaseScope scope(parts_.clock, Phase::comm);
        parts_.exchange.publish();
    }
    parts_.clock.reassign(Phase::comm, Phase::wait, parts_.exchange.take_wait_s());
    StepOutcome result = outcome();
    result.gradient_norm = norm;
    return result;
}

void TrainStep::compute_leaf(const Batch& batch,
                             const LeafRows& leaf,
                             std::int64_t step,
                             float* slot) {
    check_arithmetic(settings_.threads);
    FlatModel& model = parts_.model;
    model.use_gradients(slot);
    model.restore_buffers(parts_.exchange.values());
    seed_leaf(settings_.seed, step, leaf.leaf);
    const LeafSamples samples = [&] {
        const PhaseScope scope(parts_.clock, Phase::data);
        return parts_.input.read(batch, leaf);
    }();
    for (int part = 0; part < micro_batches(leaf); ++part) {
        if (part > 0) parts_.reducer.next_micro_batch();
        const at::Tensor loss =
            forward(part_of(samples, part, micro_batches(leaf)), batch.samples_in_step, slot);
        // Buckets may start to travel while the last backward runs.
        if (part + 1 == micro_batches(leaf)) model.store_buffers(slot);
        const PhaseScope scope(parts_.clock, Phase::backward);
        loss.backward();
    }
}

at::Tensor TrainStep::forward(const LeafSamples& part, std::int64_t samples, float* slot) {
    FlatModel& model = parts_.model;
    const PhaseScope scope(parts_.clock, Phase::forward);
    const at::Tensor loss =
        parts_.task.loss(model.model().forward(part.inputs), part) / static_cast<double>(samples);
    model.scalar(slot, StepScalar::loss_sum) += loss.item<float>();
    return loss;
}

// A short leaf may have fewer samples than the run has micro-batches.
int TrainStep::micro_batches(const LeafRows& leaf) const {
    return std::min(settings_.micro_batches, static_cast<int>(leaf.rows));
}

// A parameter that the loss does not reach: it counts as zero, and the user hears of it once.
void TrainStep::report_missing() {
    if (reported_missing_) return;
    for (const std::size_t tensor : parts_.reducer.missing()) {
        once(Level::warn,
             "parameter '{}' got no gradient; it counts as zero",
             parts_.model.parameters()[tensor].name);
        reported_missing_ = true;
    }
}

void TrainStep::add_wishes(const StepWishes& wishes, float* slot) {
    FlatModel& model = parts_.model;
    model.scalar(slot, StepScalar::requeue_wanted) = wishes.requeue ? 1.0F : 0.0F;
    model.scalar(slot, StepScalar::interrupt_wanted) = wishes.interrupt ? 1.0F : 0.0F;
    model.scalar(slot, StepScalar::save_wanted) = wishes.save ? 1.0F : 0.0F;
    model.scalar(slot, StepScalar::discard_wanted) = wishes.discard ? 1.0F : 0.0F;
}

// Exact, so that its bits do not depend on how many ranks hold how much of the gradient. Of the
// nodes' equal copies one counts.
double TrainStep::gradient_norm() const {
    std::vector<std::span<const float>> stripes;
    const std::size_t counted = parts_.exchange.is_first_copy() ? parts_.owned.bucket_count() : 0;
    for (std::size_t bucket = 0; bucket < counted; ++bucket)
        stripes.emplace_back(parts_.reducer.reduced(bucket), parts_.owned.stripe(bucket).size());
    return global_norm(parts_.ranks, stripes);
}

void TrainStep::update(const UpdateStep& step, std::int64_t samples) {
    const PhaseScope scope(parts_.clock, Phase::update);
    for (std::size_t bucket = 0; bucket < parts_.owned.bucket_count(); ++bucket) {
        const FloatRange stripe = parts_.owned.stripe(bucket);
        parts_.optimizer.update(parts_.exchange.values() + stripe.begin,
                                parts_.reducer.reduced(bucket),
                                parts_.owned.of(bucket),
                                stripe.size(),
                                step);
    }
    update_state(samples);
}

// Buffers and counters become the mean over the leaves that had samples; scalars stay sums.
void TrainStep::update_state(std::int64_t samples) {
    const FlatLayout& layout = parts_.model.layout();
    const FloatRange stripe = parts_.exchange.own_stripe(layout.state_bucket());
    const float* sums = parts_.reducer.reduced(layout.state_bucket());
    const auto active =
        static_cast<float>(std::min<std::int64_t>(samples, settings_.virtual_ranks));
    const std::size_t averaged_end =
        layout.state().end - static_cast<std::size_t>(StepScalar::count);
    float* values = parts_.exchange.values();
    for (std::size_t i = stripe.begin; i < stripe.end; ++i) {
        const float sum = sums[i - stripe.begin];
        values[i] = i < averaged_end ? sum / active : sum;
    }
}

StepOutcome TrainStep::outcome() {
    FlatModel& model = parts_.model;
    float* values = parts_.exchange.values();
    model.finish_buffers(values);
    const auto wished = [&](StepScalar which) { return model.scalar(values, which) > 0; };
    return {.loss = model.scalar(values, StepScalar::loss_sum),
            .agreed = {.requeue = wished(StepScalar::requeue_wanted),
                       .interrupt = wished(StepScalar::interrupt_wanted),
                       .save = wished(StepScalar::save_wanted),
                       .discard = wished(StepScalar::discard_wanted)}};
}

}  // namespace lockstep
