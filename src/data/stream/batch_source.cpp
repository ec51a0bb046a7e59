// SPDX-License-Identifier: Apache-2.0
#include "batch_source.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

void fill_leaves(const Step& step, const StreamOptions& options, std::vector<LeafRows>& leaves) {
    leaves.clear();
    const std::uint64_t origin =
        leaf_begin(step.samples, options.first_leaf, options.virtual_ranks);
    for (int leaf = options.first_leaf; leaf < options.last_leaf; ++leaf) {
        const std::uint64_t begin = leaf_begin(step.samples, leaf, options.virtual_ranks);
        const std::uint64_t end = leaf_begin(step.samples, leaf + 1, options.virtual_ranks);
        leaves.push_back({leaf, begin - origin, end - begin});
    }
}

}  // namespace

Batch BatchSource::next() {
    const auto room = [&] {
        return std::ranges::find_if(lent_, [](const auto& lease) { return lease.expired(); });
    };
    expect(room() != lent_.end(), "batches are given back before more are asked for");
    Batch batch = next_batch();
    *room() = batch.lease;
    return batch;
}

Batch make_batch(const Step& step,
                 const StreamOptions& options,
                 const DatasetIndex& index,
                 BatchBuffers::Lent lent) {
    BatchRoom& room = *lent.room;
    fill_leaves(step, options, room.leaves);
    room.fields.clear();
    for (std::size_t f = 0; f < room.places.size(); ++f)
        room.fields.push_back(
            room.places[f].first(room.sample_ids.size() * index.fields()[f].bytes_per_sample()));
    return {.position = step.position,
            .next = step.next,
            .samples_in_step = static_cast<std::int64_t>(step.samples),
            .leaves = room.leaves,
            .sample_ids = room.sample_ids,
            .valid = room.valid,
            .fields = room.fields,
            .lease = std::move(lent.lease)};
}

}  // namespace lockstep
