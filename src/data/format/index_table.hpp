// SPDX-License-Identifier: Apache-2.0
// The table /index/<field> of a shard, read without libhdf5.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Bytes of a row: file offset, stored bytes, first row within the shard, XXH3-64; all u64.
inline constexpr std::uint64_t index_row_bytes = 32;

/// Returns the blocks that the table's `bytes` describe, or nothing if the table is invalid. It
/// must have one row for each block of field number `field` of shard number `number`. Every block
/// must lie within the file, with a possible expanded size.
std::optional<std::vector<StoredBlock>> parse_index_rows(std::span<const std::byte> bytes,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field);

/// Returns the blocks of field number `field` of shard number `number`, or nothing. The file must
/// have the size, and the table the hash, of the manifest, and every block must lie within the
/// file. Errors: those of reading.
std::optional<std::vector<StoredBlock>> read_index_table(const std::filesystem::path& path,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field);

/// Does the same for any size of the file, to examine the rest of a damaged one.
std::optional<std::vector<StoredBlock>> read_index_rows(const std::filesystem::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field);

}  // namespace lockstep
