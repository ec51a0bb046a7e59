// SPDX-License-Identifier: Apache-2.0
#include "loop/course.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"

#include "loop/engine.hpp"
#include "loop/loop.hpp"

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

void load_due(const LoopParts& parts, std::int64_t step) {
    const Communicator& world = parts.start.ranks;
    Course& course = parts.course;
    const ReplicaTensors tensors = parts.engine.replica->tensors();
    const auto found =
        load_checkpoint(world, parts.run.paths.checkpoints(), tensors.metas, tensors.pieces, step);
    if (!found) agree_on_failure(world, no_rollback_error(course.progress.step, step));
    parts.engine.replica->start(found->counters);
    course.progress.updates = found->updates;
    course.rolled_back_to = found->updates;
}

// Of the run that this one begins from. The parameters' averages are used with any optimizer.
Counters load_source_state(const LoopParts& parts, const ReplicaTensors& tensors) {
    Counters counters = parts.engine.replica->counters();
    const InitialWeights& weights = parts.contract.weights;
    if (weights.checkpoint.empty()) return counters;
    const Communicator& world = parts.start.ranks;
    const CheckpointManifest manifest =
        agree(world, [&] { return read_checkpoint_manifest(weights.checkpoint); });
    const std::string_view begin = weights.has_state ? "optimizer." : "optimizer.average.";
    std::vector<TensorPiece> pieces;
    for (TensorPiece piece : tensors.pieces) {
        const TensorMeta& own = tensors.metas[piece.tensor];
        const auto found = std::ranges::find(manifest.tensors, own.name, &TensorMeta::name);
        if (!own.name.starts_with(begin) || found == manifest.tensors.end() ||
            found->shape != own.shape)
            continue;
        piece.tensor = static_cast<std::size_t>(found - manifest.tensors.begin());
        pieces.push_back(piece);
    }
    const auto state = load_checkpoint(
        world, weights.checkpoint.parent_path(), manifest.tensors, pieces, manifest.state.step);
    if (state && weights.has_state) parts.course.progress.updates = state->updates;
    if (state)
        for (const auto& [name, value] : state->counters) counters[name] = value;
    return counters;
}

// Whether there was a whole checkpoint.
bool load_newest(const LoopParts& parts) {
    Replica& replica = *parts.engine.replica;
    const ReplicaTensors tensors = replica.tensors();
    const auto found = load_checkpoint(
        parts.start.ranks, parts.run.paths.checkpoints(), tensors.metas, tensors.pieces);
    replica.start(found ? found->counters : load_source_state(parts, tensors));
    if (!found) return false;
    parts.course.progress = {.step = found->step,
                             .epoch = found->epoch,
                             .updates = found->updates,
                             .position = {found->order.epoch, found->order.consumed},
                             .evaluated = found->evaluated,
                             .best = found->best,
                             .loss_scale = found->loss_scale,
                             .resumed = found->step};
    return true;
}

}  // namespace

// May take as long as it likes: the watchdog ends no phase of data.
void load_data(const LoopParts& parts) {
    const PhaseScope scope(parts.run.clock, Phase::data);
    parts.course.data = std::make_unique<DataFeed>(parts.start.ranks,
                                                   parts.inputs.data,
                                                   parts.start.settings,
                                                   parts.start.node.usable_memory_bytes(),
                                                   std::max(parts.run.share.cpus.cpus, 1));
}

void set_out(const LoopParts& parts) {
    Course& course = parts.course;
    if (load_newest(parts))
        once(Level::info,
             "resumed from step {} (epoch {})",
             course.progress.step,
             course.progress.epoch);
    agree_on_torch(parts.start.ranks, [&] {
        const InputKernels* const kernels = parts.engine.kernels();
        course.stream = course.data->batches(parts.start.leaves(),
                                             course.progress.position,
                                             kernels ? kernels->page_lock : PageLock());
        course.feed = make_feed(*course.stream, *parts.engine.input, kernels);
    });
}

void begin_ledger(const LoopParts& parts) {
    const TrainSettings& settings = parts.start.settings;
    const Communicator& world = parts.start.ranks;
    const Inputs& inputs = parts.inputs;
    agree(world, [&] {
        if (!settings.ledger) return;
        parts.course.ledger.emplace(
            parts.run.paths.ledger(),
            LedgerHead{
                .samples = inputs.data->samples(),
                .data_digest = inputs.data_digest(),
                .rank = world.rank(),
                .ranks = world.size(),
                .incarnation = static_cast<std::uint64_t>(parts.run.incarnation),
                .start = parts.course.progress.position,
                .dropped = dropped_samples(settings, inputs.samples) +
                           static_cast<std::uint32_t>(inputs.data->samples() - inputs.samples)});
    });
}

// The data go on: the same batch would end the same way. Whatever checkpoints were due since the
// last time have its weights, too, if nothing was trained since.
void roll_back(const LoopParts& parts) {
    const PhaseScope scope(parts.run.clock, Phase::checkpoint);
    const Course& course = parts.course;
    const std::int64_t step =
        rollback_step(parts.start.settings, parts.contract.length, course.progress.step - 1);
    const bool is_there = course.rolled_back_to == course.progress.updates;
    if (!is_there) load_due(parts, step);
    once(Level::warn,
         "step {}: loss or gradient is not finite; weights are {} those of step {}",
         course.progress.step,
         is_there ? "still" : "again",
         step);
}

}  // namespace lockstep
