// SPDX-License-Identifier: Apache-2.0
// Asks libhdf5 what a shard is and where its blocks lie, without reading any sample.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// What the library says about one field of a shard.
struct ProbedField {
    std::vector<StoredBlock> blocks;  ///< global rows; without hashes
    std::uint64_t index_offset = 0;   ///< of /index/<field>; 0 if there is none as it should be
};

/// Opens shard number `number` of `manifest` at `path` and finds every block. The file's content is
/// not trusted, but libhdf5 must survive it: call this only where there is no other way.
/// Errors: E203, E204, E205; E207 (a field is missing); E208 (another data set's or another shape);
/// E212 (a filter, or chunks that cut rows).
std::vector<ProbedField> probe_shard(const std::filesystem::path& path,
                                     const Manifest& manifest,
                                     std::size_t number);

/// Errors: E203 saying what the file begins with; E204 if the file is shorter than its own
/// superblock says, or is shorter than `expected_bytes` and has no readable superblock.
void check_is_whole_hdf5(const std::filesystem::path& path, std::uint64_t expected_bytes);

}  // namespace lockstep
