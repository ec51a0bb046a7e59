// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/reshard.hpp"

#include "lockstep/core/error.hpp"

#include "shuffled_source.hpp"
#include "team/ordered_work.hpp"
#include "workspace.hpp"

namespace lockstep {

PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report) {
    together(options.team, [&] { check_is_free(options.output); });
    const auto blocks = static_cast<std::size_t>(2 * worker_count(options.threads) + 2);
    const auto packed = open_packed(input, blocks);
    PackOptions plan = options;
    plan.classes = 0;
    plan.class_names.clear();
    if (plan.split.empty()) plan.split = input->split();
    if (plan.block_rows == 0) plan.block_rows = input->manifest().block_rows;
    if (!plan.shuffle_seed) return pack_dataset(*packed, plan, report);
    const ShuffleOptions shuffle{
        *plan.shuffle_seed, options.output, memory_bytes, options.threads, options.team};
    const auto shuffled = shuffle_rows(*packed, shuffle, [&](std::uint64_t done) {
        if (report) report({"shuffle", done, packed->samples()});
    });
    plan.shuffle_seed.reset();
    return pack_dataset(*shuffled, plan, report);
}

}  // namespace lockstep
