// SPDX-License-Identifier: Apache-2.0
#include "batch_source.hpp"

namespace lockstep {

Batch begin_batch(const Step& step, const StreamOptions& options) {
    Batch batch;
    batch.position = step.position;
    batch.next = step.next;
    batch.samples_in_step = static_cast<std::int64_t>(step.samples);
    const std::uint64_t origin =
        leaf_begin(step.samples, options.first_leaf, options.virtual_ranks);
    for (int leaf = options.first_leaf; leaf < options.last_leaf; ++leaf) {
        const std::uint64_t begin = leaf_begin(step.samples, leaf, options.virtual_ranks);
        const std::uint64_t end = leaf_begin(step.samples, leaf + 1, options.virtual_ranks);
        batch.leaves.push_back({leaf, begin - origin, end - begin});
    }
    return batch;
}

}  // namespace lockstep
