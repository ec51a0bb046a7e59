// SPDX-License-Identifier: Apache-2.0
#include "index_table.hpp"

#include "lockstep/core/files.hpp"

#include "expansion.hpp"
#include "index_columns.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep {
namespace {

using IndexRow = std::array<std::uint64_t, index_row_bytes / 8>;

// Returns nothing if the file ends early or the hash differs.
std::vector<std::byte> read_rows(const fs::path& path, const IndexPlace& place) {
    const UniqueFd fd = open_for_reading(path);
    // The size of the file bounds the memory, whatever the manifest says.
    const std::uint64_t end = fs::file_size(path);
    if (place.offset > end || place.blocks > (end - place.offset) / index_row_bytes) return {};
    std::vector<std::byte> bytes(place.blocks * index_row_bytes);
    const std::size_t got = read_at(fd.value(), bytes, place.offset, path);
    if (got < bytes.size() || hash64(bytes) != place.hash) bytes.clear();
    return bytes;
}

bool is_sound(const StoredBlock& block,
              const IndexRow& row,
              std::uint64_t first,
              std::uint64_t end) {
    return row[2] == first && block.stored_bytes >= 1 &&
           block.stored_bytes <= block.decoded_bytes && block.offset <= end &&
           block.stored_bytes <= end - block.offset &&
           (block.codec != Codec::none || block.stored_bytes == block.decoded_bytes);
}

}  // namespace

std::optional<std::vector<StoredBlock>> parse_index_rows(std::span<const std::byte> bytes,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field) {
    const Shard& shard = manifest.shards[number];
    const std::uint64_t row_bytes = manifest.fields[field].bytes_per_sample();
    const std::uint64_t chunk_rows = std::min<std::uint64_t>(manifest.block_rows, shard.samples);
    const bool is_chunked = manifest.codec != Codec::none;
    const std::uint64_t count = (shard.samples - 1) / manifest.block_rows + 1;
    if (bytes.size() / index_row_bytes != count || bytes.size() % index_row_bytes != 0) return {};
    if (chunk_rows > most_decoded_bytes / row_bytes) return {};
    const std::vector<RowBlock> rows = row_blocks(shard.samples, manifest.block_rows);
    // A codec has the number of its filter.
    const FilterChain filters{{static_cast<FilterKind>(manifest.codec)}};
    std::vector<StoredBlock> blocks;
    blocks.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        IndexRow row;
        std::memcpy(row.data(), bytes.data() + i * index_row_bytes, index_row_bytes);
        StoredBlock block{.first_row = shard.first_sample + rows[i].first,
                          .offset = row[0],
                          .stored_bytes = row[1],
                          .decoded_bytes = row_bytes * (is_chunked ? chunk_rows : rows[i].rows),
                          .hash = row[3],
                          .rows = rows[i].rows,
                          .shard = static_cast<std::uint32_t>(number),
                          .codec = manifest.codec,
                          .is_hashed = true};
        // Blocks that would not get smaller are stored as they are.
        if (block.stored_bytes == block.decoded_bytes) block.codec = Codec::none;
        if (!is_sound(block, row, rows[i].first, shard.bytes)) return {};
        if (block.codec != Codec::none &&
            block.decoded_bytes > most_expanded(filters, block.stored_bytes))
            return {};
        blocks.push_back(block);
    }
    return blocks;
}

std::optional<std::vector<StoredBlock>> read_index_rows(const std::filesystem::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field) {
    return parse_index_rows(
        read_rows(path, manifest.shards[number].index[field]), manifest, number, field);
}

std::optional<std::vector<StoredBlock>> read_index_table(const std::filesystem::path& path,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field) {
    if (fs::file_size(path) != manifest.shards[number].bytes) return {};
    return read_index_rows(path, manifest, number, field);
}

}  // namespace lockstep
