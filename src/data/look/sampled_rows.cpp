// SPDX-License-Identifier: Apache-2.0
#include "sampled_rows.hpp"

#include "stream/block_reader.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t large_block = std::uint64_t{8} << 20;
constexpr std::uint64_t most_buffer_bytes = std::uint64_t{512} << 20;

// Of a block as it is decoded; tiles of one band count each, and all of them are.
std::uint64_t largest_block(const DatasetIndex& index, std::size_t field) {
    std::uint64_t largest = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) {
        const Cut* cut = index.cut_of(block);
        largest = std::max(largest, block.decoded_bytes * (cut ? cut->tiles() : 1));
    }
    return largest;
}

struct Places {
    std::uint64_t count = 1, rows = 1;  ///< rows at each
};

Places places_of(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t block_bytes) {
    if (rows * row_bytes <= most_bytes) return {1, rows};
    const std::uint64_t count = std::min<std::uint64_t>(rows, block_bytes > large_block ? 4 : 16);
    return {count, std::clamp<std::uint64_t>(most_bytes / count / row_bytes, 1, rows / count)};
}

}  // namespace

std::span<const std::byte> SampledRows::row(std::uint64_t number) const {
    const std::size_t row_bytes = bytes.size() / rows;
    return std::span(bytes).subspan(number * row_bytes, row_bytes);
}

std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field) {
    const Field& described = index->fields()[field];
    const std::uint64_t row_bytes = described.bytes_per_sample();
    const std::uint64_t block_bytes = largest_block(*index, field);
    if (std::max(row_bytes, block_bytes) > most_buffer_bytes) return {};
    const Places places = places_of(index->samples(), row_bytes, block_bytes);
    SampledRows sample{.type = described.type,
                       .shape = described.shape,
                       .rows = places.count * places.rows,
                       .of = index->samples()};
    sample.bytes.resize(sample.rows * row_bytes);
    ShardFiles files(index, Access::scattered);
    BlockReader reader(files, field);
    for (std::uint64_t i = 0; i < places.count; ++i)
        reader.read_rows(
            field,
            i * index->samples() / places.count,
            places.rows,
            std::span(sample.bytes).subspan(i * places.rows * row_bytes, places.rows * row_bytes));
    return sample;
}

}  // namespace lockstep
