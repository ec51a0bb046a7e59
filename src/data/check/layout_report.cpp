// SPDX-License-Identifier: Apache-2.0
// Reports the layout of fields and the mixing of labels, with advice. Tested:
// data/check/inspect_test.cpp
#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"
#include "inspection.hpp"
#include "stream/block_reader.hpp"
#include "stream/read_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t least_block = std::uint64_t{256} << 10, most_block = std::uint64_t{1} << 20;
constexpr std::uint64_t least_blocks = 128, most_label_blocks = 4096;
constexpr double ratio_worth_it = 1.1, mixed_enough = 0.8;

// Returns the command that stores the data in another way: foreign files are packed first.
std::string rewriting(const DatasetIndex& index) {
    return index.manifest().kind == ManifestKind::packed ? "lockstep data reshard"
                                                         : "lockstep data pack --hdf5 ...";
}

// Widened while they are read, from rows that lie side by side.
bool is_only_widened(const DatasetIndex& index, const StoredBlock& block) {
    const FilterChain& chain = index.chain_of(block);
    return chain.size() == 1 && is_own_filter(static_cast<std::uint64_t>(chain[0].kind));
}

FieldLayout layout_of(const DatasetIndex& index, std::size_t number) {
    const Field& field = index.fields()[number];
    FieldLayout layout{.field = field.name};
    for (const StoredBlock& block : index.stored_blocks(number)) {
        const bool is_raw = block.codec == Codec::none || is_only_widened(index, block);
        layout.is_chunked = layout.is_chunked || !is_raw ||
                            block.decoded_bytes != block.rows * field.bytes_per_sample();
        layout.stored_bytes += block.stored_bytes;
        layout.block_bytes = std::max(layout.block_bytes, block.decoded_bytes);
        layout.is_cut = layout.is_cut || block.cut != 0;
    }
    layout.blocks = index.stored_blocks(number).size();
    layout.raw_bytes = index.samples() * field.bytes_per_sample();
    return layout;
}

double entropy_bits(std::span<const std::uint64_t> counts) {
    double total = 0, bits = 0;
    for (const std::uint64_t count : counts) total += static_cast<double>(count);
    for (const std::uint64_t count : counts)
        if (count > 0) {
            const double part = static_cast<double>(count) / total;
            bits -= part * std::log2(part);
        }
    return bits;
}

double bits_of_block(ElementType type,
                     std::span<const std::byte> rows,
                     std::vector<std::uint64_t>& counts) {
    std::ranges::fill(counts, 0);
    for (std::size_t row = 0; row < rows.size() / element_bytes(type); ++row) {
        const std::int64_t label = label_at(type, rows, row);
        if (label >= 0 && label < static_cast<std::int64_t>(counts.size()))
            ++counts[static_cast<std::size_t>(label)];
    }
    return entropy_bits(counts);
}

// Returns the mixing of each label field with at least two classes, by evenly spaced blocks.
std::vector<LabelMix> label_mixes(const std::shared_ptr<const DatasetIndex>& index) {
    std::vector<LabelMix> mixes;
    ShardFiles files(index);
    for (std::size_t f = 0; f < index->fields().size(); ++f) {
        const Field& field = index->fields()[f];
        if (!field.shape.empty() || field.classes() < 2) continue;
        std::vector<std::uint64_t> counts(field.class_counts.size());
        const std::uint64_t all = index->stored_blocks(f).size();
        LabelMix mix{.field = field.name, .whole_bits = entropy_bits(field.class_counts)};
        mix.blocks = std::min(all, most_label_blocks);
        BlockReader reader(files, f);
        for (std::uint64_t i = 0; i < mix.blocks; ++i)
            mix.block_bits +=
                bits_of_block(field.type, reader.read_block(f, i * all / mix.blocks), counts) /
                static_cast<double>(mix.blocks);
        mixes.push_back(std::move(mix));
    }
    return mixes;
}

// The field that costs most decides; small ones follow its blocks.
void advise_on_blocks(const DatasetIndex& index, LayoutReport& all) {
    const FieldLayout& largest = *std::ranges::max_element(
        all.fields, {}, [](const FieldLayout& layout) { return layout.raw_bytes; });
    if (largest.is_cut) return;  // said by what that costs
    const std::uint64_t row = std::max<std::uint64_t>(largest.raw_bytes / index.samples(), 1);
    const auto advise = [&](const std::string& why, std::uint64_t bytes) {
        all.advice.push_back(
            fmt::format("Blocks of '{}' have {}: {} '{} --block-rows {}' makes them about {}.",
                        largest.field,
                        bytes_text(largest.block_bytes),
                        why,
                        rewriting(index),
                        std::max<std::uint64_t>(bytes / row, 1),
                        bytes_text(std::max(bytes, row))));
    };
    const bool has_enough_blocks = largest.blocks > 4 * least_blocks;
    if (largest.block_bytes < least_block && has_enough_blocks)
        advise("requests below 256 KiB do not reach the speed of the disk.", least_block * 2);
    if (largest.block_bytes > most_block && largest.block_bytes > row)
        advise("windows of several such blocks need much memory and mix few.", least_block * 2);
    if (row > 4 * most_block)
        all.advice.push_back(fmt::format(
            "A sample of '{}' has {}: reading is sequential anyhow; blocks of one row are right.",
            largest.field,
            bytes_text(row)));
}

void advise_on_codecs(const DatasetIndex& index, LayoutReport& all) {
    for (const FieldLayout& layout : all.fields)
        if (layout.is_chunked && layout.raw_bytes > most_block && layout.ratio() < ratio_worth_it)
            all.advice.push_back(
                fmt::format("'{}' gets {:.2f}x smaller, which does not pay for decoding: "
                            "'{} --codec none'.",
                            layout.field,
                            layout.ratio(),
                            rewriting(index)));
}

void advise_on_mixing(const DatasetIndex& index, LayoutReport& all) {
    const bool is_packed = index.manifest().kind == ManifestKind::packed;
    for (const LabelMix& mix : all.labels)
        if (mix.mixing() < mixed_enough)
            all.advice.push_back(fmt::format(
                "Blocks hold few classes of '{}' (row order '{}'): each rank would see them in "
                "runs. '{}{}' mixes them for good.",
                mix.field,
                index.manifest().row_order,
                rewriting(index),
                is_packed ? " --shuffle-seed 0" : ""));
}

constexpr int most_ranks_looked_at = 64;

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

// Virtual ranks are the ranks, rounded up to a power of two: the fewest that a run has.
JobFit fit_of(const DatasetIndex& index, const JobShape& job) {
    StreamOptions options;
    options.batch = job.batch;
    options.lanes = job.lanes;
    options.window_blocks = job.window_blocks;
    options.virtual_ranks = static_cast<int>(std::bit_ceil(static_cast<unsigned>(job.ranks)));
    // Without the short last step of an epoch, whose few samples say nothing about the rest.
    const std::uint64_t rest = index.samples() % static_cast<std::uint64_t>(job.batch);
    const std::uint64_t samples = index.samples() > rest ? index.samples() - rest : index.samples();
    const std::vector<RowBlock> blocks = row_blocks(samples, index.manifest().block_rows);
    const EpochOrder order(blocks, order_spec(options), 0);
    const std::vector<std::size_t> held = lanes_of_ranks(blocks, options, job.ranks);
    JobFit fit{.job = job, .lanes = order.lanes()};
    fit.window_bytes = order.max_window_rows() * index.manifest().bytes_per_sample();
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

void advise_on_job(const DatasetIndex& index, LayoutReport& all) {
    const JobFit& fit = *all.fit;
    if (fit.read_amplification > 1.05)
        all.advice.push_back(fmt::format(
            "Ranks share windows and read {:.2f}x the data set: choose ranks that divide the {} "
            "lanes, and a batch that these divide.",
            fit.read_amplification,
            fit.lanes));
    if (fit.lanes < fit.job.lanes)
        all.advice.push_back(
            fmt::format("There are {} blocks for {} lanes: smaller blocks would mix better.",
                        index.blocks().size(),
                        fit.job.lanes));
    if (!fit.shards_suffice)
        all.advice.push_back(fmt::format(
            "{} shard{} for {} nodes: file systems deliver more from one file per node.",
            index.shards().size(),
            index.shards().size() == 1 ? "" : "s",
            fit.job.nodes));
    if (fit.fits_in_memory)
        all.advice.push_back(
            "The data set fits into the memory of a node: read it once and keep it there.");
}

}  // namespace

LayoutReport layout_report(const std::shared_ptr<const DatasetIndex>& index,
                           const std::optional<JobShape>& job) {
    LayoutReport all;
    for (std::size_t f = 0; f < index->fields().size(); ++f)
        all.fields.push_back(layout_of(*index, f));
    all.labels = label_mixes(index);
    for (const std::string& cost : cut_costs(*index)) all.advice.push_back("The " + cost + ".");
    advise_on_blocks(*index, all);
    advise_on_codecs(*index, all);
    advise_on_mixing(*index, all);
    if (job) {
        all.fit = fit_of(*index, *job);
        advise_on_job(*index, all);
    }
    return all;
}

}  // namespace lockstep
