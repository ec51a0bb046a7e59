// SPDX-License-Identifier: Apache-2.0
// Converts the state of a job to a checkpoint's, and back.
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "loop/job.hpp"

namespace lockstep {

CheckpointState Job::state() const {
    return {.step = progress_.step,
            .epoch = progress_.epoch,
            .updates = progress_.updates,
            .order = {.kind = settings_.order,
                      .data_digest = data_digest(),
                      .seed = settings_.seed,
                      .lanes = settings_.lanes,
                      .window_blocks = settings_.window_blocks,
                      .epoch = progress_.position.epoch,
                      .consumed = progress_.position.consumed},
            .contract = contract_,
            .evaluated = progress_.evaluated,
            .best = progress_.best,
            .loss_scale = progress_.loss_scale,
            .ranks = mesh_.world.size(),
            .virtual_ranks = settings_.virtual_ranks,
            .parameter_hash = replica_->hash(),
            .counters = replica_->counters()};
}

void Job::save() {
    const PhaseScope scope(clock_, Phase::checkpoint);
    ++saves_;
    feed_->check_files();
    if (ledger_) agree(mesh_.world, [&] { ledger_->flush(); });
    ReplicaTensors tensors = replica_->tensors();
    if (!mesh_.world.is_root()) tensors.pieces.resize(tensors.own_pieces);
    if (!tensors.is_first_copy) tensors.pieces.clear();
    CheckpointPlace place{.root = run_.paths.checkpoints(),
                          .incarnation = run_.incarnation,
                          .check_still_ours = {},
                          .keep = settings_.keep_checkpoints,
                          .kept_steps = {kept_step(settings_, progress_.best)},
                          .needed_by = {},
                          .clock = &clock_};
    if (settings_.on_nonfinite == NonFinite::rollback) {
        place.kept_steps.push_back(rollback_step(settings_, length_, progress_.step));
        place.needed_by = [this](std::int64_t step) {
            return rollback_step(settings_, length_, step);
        };
    }
    if (run_.directory) place.check_still_ours = [this] { run_.directory->check_still_ours(); };
    save_checkpoint(mesh_.world, place, state(), tensors.metas, tensors.pieces);
}

// The data go on: the same batch would end the same way. Whatever checkpoints were due since the
// last time have its weights, too, if nothing was trained since.
void Job::roll_back() {
    const PhaseScope scope(clock_, Phase::checkpoint);
    const std::int64_t step = rollback_step(settings_, length_, progress_.step - 1);
    const bool is_there = rolled_back_to_ == progress_.updates;
    if (!is_there) load_due(step);
    once(Level::warn,
         "step {}: loss or gradient is not finite; weights are {} those of step {}",
         progress_.step,
         is_there ? "still" : "again",
         step);
}

void Job::load_due(std::int64_t step) {
    const ReplicaTensors tensors = replica_->tensors();
    const auto found =
        load_checkpoint(mesh_.world, run_.paths.checkpoints(), tensors.metas, tensors.pieces, step);
    if (!found) agree_on_failure(mesh_.world, no_rollback_error(progress_.step, step));
    replica_->start(found->counters);
    progress_.updates = found->updates;
    rolled_back_to_ = found->updates;
}

bool Job::load() {
    const ReplicaTensors tensors = replica_->tensors();
    const auto found =
        load_checkpoint(mesh_.world, run_.paths.checkpoints(), tensors.metas, tensors.pieces);
    replica_->start(found ? found->counters : replica_->counters());
    if (!found) return false;
    progress_ = {.step = found->step,
                 .epoch = found->epoch,
                 .updates = found->updates,
                 .position = {found->order.epoch, found->order.consumed},
                 .evaluated = found->evaluated,
                 .best = found->best,
                 .loss_scale = found->loss_scale};
    return true;
}

}  // namespace lockstep
