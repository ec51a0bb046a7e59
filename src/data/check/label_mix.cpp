// SPDX-License-Identifier: Apache-2.0
#include "label_mix.hpp"

#include "format/labels.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

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

}  // namespace

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

std::vector<LabelMix> label_mixes(std::shared_ptr<const DatasetIndex> index,
                                  std::uint64_t most_blocks) {
    std::vector<LabelMix> mixes;
    ShardFiles files(index);
    for (std::size_t f = 0; f < index->fields().size(); ++f) {
        const Field& field = index->fields()[f];
        if (!field.shape.empty() || field.classes() < 2) continue;
        std::vector<std::uint64_t> counts(field.class_counts.size());
        const std::uint64_t all = index->stored_blocks(f).size();
        LabelMix mix{.field = field.name, .whole_bits = entropy_bits(field.class_counts)};
        mix.blocks = std::min(all, most_blocks);
        BlockReader reader(files, f);
        for (std::uint64_t i = 0; i < mix.blocks; ++i)
            mix.block_bits +=
                bits_of_block(field.type, reader.read_block(f, i * all / mix.blocks), counts) /
                static_cast<double>(mix.blocks);
        mixes.push_back(std::move(mix));
    }
    return mixes;
}

}  // namespace lockstep
