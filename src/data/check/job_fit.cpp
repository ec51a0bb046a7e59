// SPDX-License-Identifier: Apache-2.0
#include "job_fit.hpp"

#include "stream/read_plan.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lockstep {
namespace {

constexpr int most_ranks_looked_at = 64;

// Without the short last step of an epoch, whose few samples say nothing about the rest.
std::vector<RowBlock> whole_steps(const DatasetIndex& index, std::int64_t batch) {
    const std::uint64_t rest = index.samples() % static_cast<std::uint64_t>(batch);
    const std::uint64_t samples = index.samples() > rest ? index.samples() - rest : index.samples();
    return row_blocks(samples, index.manifest().block_rows);
}

// Lanes that each rank looked at holds windows of.
std::vector<std::size_t> lanes_of_ranks(const std::vector<RowBlock>& blocks,
                                        StreamOptions options,
                                        int ranks) {
    std::vector<std::size_t> lanes;
    const int looked_at = std::min(ranks, most_ranks_looked_at);
    for (int i = 0; i < looked_at; ++i) {
        const std::int64_t rank = std::int64_t{ranks} * i / looked_at;
        options.first_leaf = static_cast<int>(options.virtual_ranks * rank / ranks);
        options.last_leaf = static_cast<int>(options.virtual_ranks * (rank + 1) / ranks);
        lanes.push_back(lanes_held(blocks, options, {}).size());
    }
    return lanes;
}

}  // namespace

JobFit fit_of(const DatasetIndex& index, const JobShape& job) {
    StreamOptions options;
    options.batch = job.batch;
    options.lanes = job.lanes;
    options.window_blocks = job.window_blocks;
    options.virtual_ranks = static_cast<int>(std::bit_ceil(static_cast<unsigned>(job.ranks)));
    const std::vector<RowBlock> blocks = whole_steps(index, job.batch);
    const auto order = OrderCache(blocks, options).of_epoch(0);
    const std::vector<std::size_t> held = lanes_of_ranks(blocks, options, job.ranks);
    JobFit fit{.job = job, .lanes = order->lanes()};
    fit.window_bytes = order->max_window_rows() * index.manifest().bytes_per_sample();
    fit.lanes_of_rank = std::ranges::max(held);
    const double mean = static_cast<double>(std::accumulate(held.begin(), held.end(), 0UL)) /
                        static_cast<double>(held.size());
    fit.read_amplification = mean * job.ranks / fit.lanes;
    fit.rank_bytes = (fit.lanes_of_rank + 1) * fit.window_bytes;
    fit.lanes_divide_evenly = fit.lanes % job.ranks == 0 && job.batch % fit.lanes == 0;
    fit.shards_suffice = index.shards().size() >= static_cast<std::size_t>(job.nodes);
    fit.resident_bytes = index.samples() * index.manifest().bytes_per_sample();
    fit.fits_in_memory =
        job.node_memory_bytes > 0 && fit.resident_bytes < job.node_memory_bytes / 2;
    return fit;
}

}  // namespace lockstep
