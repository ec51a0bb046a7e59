// SPDX-License-Identifier: Apache-2.0
#include "loop/job_checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

struct JobTensors {
    std::vector<TensorMeta> metas;
    std::vector<TensorPiece> pieces;
};

// The part of tensor `place` that lies in `stripe`; `stripe_data` holds the stripe's values.
void add_piece(JobTensors& tensors,
               std::size_t tensor,
               const FlatTensor& place,
               FloatRange stripe,
               float* stripe_data) {
    const std::size_t begin = std::max(stripe.begin, place.range.begin);
    const std::size_t end = std::min(stripe.end, place.range.end);
    if (begin >= end) return;
    tensors.pieces.push_back(
        {tensor, begin - place.range.begin, end - begin, stripe_data + (begin - stripe.begin)});
}

// All tensors by name, and the pieces of them that this rank owns: it loads those, and saves them
// if its node's copy is the one that is saved.
JobTensors tensors_of(Job& job) {
    JobTensors tensors;
    float* values = job.exchange->values();
    for (const FlatTensor& place : job.model->parameters()) {
        tensors.metas.push_back({place.name, place.shape});
        for (std::size_t b = 0; b < job.owned->bucket_count(); ++b)
            add_piece(tensors,
                      tensors.metas.size() - 1,
                      place,
                      job.owned->stripe(b),
                      values + job.owned->stripe(b).begin);
    }
    const FloatRange state = job.exchange->own_stripe(job.model->layout().state_bucket());
    for (const FlatTensor& place : job.model->buffers()) {
        tensors.metas.push_back({place.name, place.shape});
        add_piece(tensors, tensors.metas.size() - 1, place, state, values + state.begin);
    }
    for (std::size_t k = 0; k < job.owned->names().size(); ++k)
        for (const FlatTensor& place : job.model->parameters()) {
            tensors.metas.push_back(
                {"optimizer." + job.owned->names()[k] + "." + place.name, place.shape});
            for (std::size_t b = 0; b < job.owned->bucket_count(); ++b)
                add_piece(tensors,
                          tensors.metas.size() - 1,
                          place,
                          job.owned->stripe(b),
                          job.owned->of(b)[k]);
        }
    return tensors;
}

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
            .parameter_hash = parameter_hash(*job.model, job.exchange->values()),
            .counters = job.model->counters()};
}

}  // namespace

void save_job(Job& job) {
    const PhaseScope scope(job.clock, Phase::checkpoint);
    if (job.ledger) agree(job.ranks, [&] { job.ledger->flush(); });
    JobTensors tensors = tensors_of(job);
    if (!job.exchange->is_first_copy()) tensors.pieces.clear();
    CheckpointPlace place{.root = job.run.paths.checkpoints(),
                          .incarnation = job.run.incarnation,
                          .check_still_ours = {},
                          .keep = job.settings.keep_checkpoints};
    if (job.run.directory)
        place.check_still_ours = [&job] { job.run.directory->check_still_ours(); };
    save_checkpoint(job.ranks, place, state_of(job), tensors.metas, tensors.pieces);
}

bool load_job(Job& job) {
    const JobTensors tensors = tensors_of(job);
    const auto state =
        load_checkpoint(job.ranks, job.run.paths.checkpoints(), tensors.metas, tensors.pieces);
    if (!state) return false;
    job.progress.step = state->step;
    job.progress.epoch = state->epoch;
    job.progress.last_accuracy = state->last_accuracy;
    job.progress.position = {state->order.epoch, state->order.consumed};
    job.model->set_counters(state->counters);
    return true;
}

std::string parameter_hash(const FlatModel& model, const float* values) {
    Hasher128 hasher;
    const auto add = [&](const FlatTensor& place) {
        hasher.add(bytes_of(place.name));
        hasher.add(std::as_bytes(std::span(values + place.range.begin, place.range.size())));
    };
    for (const FlatTensor& place : model.parameters()) add(place);
    for (const FlatTensor& place : model.buffers()) add(place);
    for (const auto& [name, value] : model.counters()) {
        hasher.add(bytes_of(name));
        hasher.add(std::as_bytes(std::span(&value, 1)));
    }
    return hasher.value().hex();
}

}  // namespace lockstep
