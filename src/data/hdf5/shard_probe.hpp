// SPDX-License-Identifier: Apache-2.0
// Asks libhdf5 for the kind of a shard and the places of its blocks, without reading any sample.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "sandbox.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The blocks of one shard.
struct ShardBlocks {
    std::vector<std::vector<StoredBlock>> blocks;  ///< by field: global rows
    std::vector<std::uint64_t> tables;  ///< by field: place of /index/<field>, 0 for no valid one
    BlockForms forms;                   ///< the filters of blocks with codec `filters`
};

/// Opens shard number `number` of `manifest` at `path` and finds every block, without hashes: in
/// `sandbox`, or in this process for files just written, and files whose hash is right. Errors:
/// E203, E204, E205; E207 (a field is missing); E208 (another data set's or another shape); E212 (a
/// filter, or chunks that cut rows); those of Sandbox::look().
ShardBlocks probe_shard(const fs::path& path,
                        const Manifest& manifest,
                        std::size_t number,
                        Sandbox* sandbox = nullptr);

/// The kind of a file by its begin.
struct FileGuess {
    bool is_known = false;
    std::string meaning;  ///< "it begins like a zip archive", "it begins with the bytes 0a 0b"
    std::string way;      ///< a command that makes data of it, or another remedy
};

/// Guesses the kind. `made` is the ending of the expanded file for a compressed one, such as ".h5".
/// Errors: E201, E202.
FileGuess guess_of_file(const fs::path& path, std::string_view made = "");

/// Checks that a file is whole HDF5. Errors: E203 naming the file's first bytes; E204 if the file
/// is shorter than its own superblock says, or is shorter than `expected_bytes` and has no readable
/// superblock.
void check_is_whole_hdf5(const fs::path& path, std::uint64_t expected_bytes);

/// Returns the version of a file's superblock if that is newer than those of HDF5 1.10 to 1.14 (0
/// to 3); nothing for others, and for other files. Errors: those of opening it.
std::optional<unsigned> newer_superblock(const fs::path& path);

/// Returns true if a file has HDF5's signature at a valid place. Errors: those of opening it.
bool is_hdf5(const fs::path& path);

}  // namespace lockstep
