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

/// The blocks that the table's `bytes` describe, if they are one row for each block of field number
/// `field` of shard number `number`, and every block lies within the file and can be what it is
/// said to expand to; else nothing.
std::optional<std::vector<StoredBlock>> parse_index_rows(std::span<const std::byte> bytes,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field);

/// The blocks of field number `field` of shard number `number`, if the file has the size and the
/// table the hash that the manifest gives, and every block lies within the file; else nothing.
/// Errors: those of reading.
std::optional<std::vector<StoredBlock>> read_index_table(const std::filesystem::path& path,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field);

/// The same whatever the size of the file, for a look at what is left of a damaged one.
std::optional<std::vector<StoredBlock>> read_index_rows(const std::filesystem::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field);

}  // namespace lockstep
