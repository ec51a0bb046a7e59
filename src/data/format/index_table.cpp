// SPDX-License-Identifier: Apache-2.0
#include "index_table.hpp"

#include "lockstep/core/files.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using IndexRow = std::array<std::uint64_t, index_row_bytes / 8>;

std::vector<IndexRow> read_rows(const fs::path& path, const IndexPlace& place) {
    const UniqueFd fd = open_for_reading(path);
    // The size of the file bounds the table (the manifest is checked for that) and so the memory.
    std::vector<IndexRow> rows(place.blocks);
    const auto bytes = std::as_writable_bytes(std::span(rows));
    const std::size_t got = read_at(fd.value(), bytes, place.offset, path);
    if (got < bytes.size() || hash64(bytes) != place.hash) rows.clear();
    return rows;
}

bool is_sound(const StoredBlock& block,
              const IndexRow& row,
              std::uint64_t first,
              std::uint64_t end) {
    return row[2] == first && block.stored_bytes >= 1 &&
           block.stored_bytes <= block.decoded_bytes && block.offset <= end &&
           block.stored_bytes <= end - block.offset;
}

}  // namespace

std::optional<std::vector<StoredBlock>> read_index_rows(const std::filesystem::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field) {
    const Shard& shard = manifest.shards[number];
    const std::uint64_t row_bytes = manifest.fields[field].bytes_per_sample();
    const std::uint64_t chunk_rows = std::min<std::uint64_t>(manifest.block_rows, shard.samples);
    const bool is_chunked = manifest.codec != Codec::none;
    const std::vector<IndexRow> table = read_rows(path, shard.index[field]);
    const std::vector<RowBlock> rows = row_blocks(shard.samples, manifest.block_rows);
    if (table.size() != rows.size()) return {};
    std::vector<StoredBlock> blocks;
    blocks.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        StoredBlock block{.first_row = shard.first_sample + rows[i].first,
                          .offset = table[i][0],
                          .stored_bytes = table[i][1],
                          .decoded_bytes = row_bytes * (is_chunked ? chunk_rows : rows[i].rows),
                          .hash = table[i][3],
                          .rows = rows[i].rows,
                          .shard = static_cast<std::uint32_t>(number),
                          .codec = manifest.codec,
                          .is_hashed = true};
        // Blocks that would not get smaller are stored as they are.
        if (block.stored_bytes == block.decoded_bytes) block.codec = Codec::none;
        if (!is_sound(block, table[i], rows[i].first, shard.bytes)) return {};
        blocks.push_back(block);
    }
    return blocks;
}

std::optional<std::vector<StoredBlock>> read_index_table(const std::filesystem::path& path,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field) {
    if (fs::file_size(path) != manifest.shards[number].bytes) return {};
    return read_index_rows(path, manifest, number, field);
}

}  // namespace lockstep
