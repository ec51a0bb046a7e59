// SPDX-License-Identifier: Apache-2.0
#include "loop/job_checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace lockstep {
namespace {

CheckpointState state_of(const Job& job) {
    const TrainSettings& settings = job.settings;
    return {.step = job.progress.step,
            .epoch = job.progress.epoch,
            .order = {.kind = settings.order,
                      .data_digest = job.data->digest(),
                      .seed = settings.seed,
                      .lanes = settings.lanes,
                      .window_blocks = settings.window_blocks,
                      .epoch = job.progress.position.epoch,
                      .consumed = job.progress.position.consumed},
            .contract = job.contract,
            .last_accuracy = job.progress.last_accuracy,
            .ranks = job.ranks.size(),
            .virtual_ranks = settings.virtual_ranks,
            .parameter_hash = job.replica->hash(),
            .counters = job.replica->counters()};
}

}  // namespace

void save_job(Job& job) {
    const PhaseScope scope(job.clock, Phase::checkpoint);
    if (job.ledger) agree(job.ranks, [&] { job.ledger->flush(); });
    ReplicaTensors tensors = job.replica->tensors();
    if (!tensors.is_first_copy) tensors.pieces.clear();
    CheckpointPlace place{.root = job.run.paths.checkpoints(),
                          .incarnation = job.run.incarnation,
                          .check_still_ours = {},
                          .keep = job.settings.keep_checkpoints};
    if (job.run.directory)
        place.check_still_ours = [&job] { job.run.directory->check_still_ours(); };
    save_checkpoint(job.ranks, place, state_of(job), tensors.metas, tensors.pieces);
}

bool load_job(Job& job) {
    const ReplicaTensors tensors = job.replica->tensors();
    const auto state =
        load_checkpoint(job.ranks, job.run.paths.checkpoints(), tensors.metas, tensors.pieces);
    job.replica->start(state ? state->counters : job.replica->counters());
    if (!state) return false;
    job.progress.step = state->step;
    job.progress.epoch = state->epoch;
    job.progress.last_accuracy = state->last_accuracy;
    job.progress.position = {state->order.epoch, state->order.consumed};
    return true;
}

}  // namespace lockstep
