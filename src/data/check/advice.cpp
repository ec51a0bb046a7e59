// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/inspect.hpp"

#include "format/cut_cost.hpp"
#include "job_fit.hpp"
#include "label_mix.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t least_block = std::uint64_t{256} << 10, most_block = std::uint64_t{1} << 20;
constexpr std::uint64_t least_blocks = 128, most_label_blocks = 4096;
constexpr double ratio_worth_it = 1.1, mixed_enough = 0.8;

// How to store the data another way: files of others are packed first.
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

// The field that costs most decides; small ones follow its blocks.
void advise_on_blocks(const DatasetIndex& index, Inspection& all) {
    const FieldLayout& largest = *std::ranges::max_element(
        all.layouts, {}, [](const FieldLayout& layout) { return layout.raw_bytes; });
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

void advise_on_codecs(const DatasetIndex& index, Inspection& all) {
    for (const FieldLayout& layout : all.layouts)
        if (layout.is_chunked && layout.raw_bytes > most_block && layout.ratio() < ratio_worth_it)
            all.advice.push_back(
                fmt::format("'{}' gets {:.2f}x smaller, which does not pay for decoding: "
                            "'{} --codec none'.",
                            layout.field,
                            layout.ratio(),
                            rewriting(index)));
}

void advise_on_mixing(const DatasetIndex& index, Inspection& all) {
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

void advise_on_job(const DatasetIndex& index, Inspection& all) {
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
            "The data set fits into the memory of a node: read it once and keep "
            "it there.");
}

}  // namespace

Inspection inspect_dataset(std::shared_ptr<const DatasetIndex> index,
                           const std::optional<JobShape>& job) {
    Inspection all;
    for (std::size_t f = 0; f < index->fields().size(); ++f)
        all.layouts.push_back(layout_of(*index, f));
    all.labels = label_mixes(index, most_label_blocks);
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
