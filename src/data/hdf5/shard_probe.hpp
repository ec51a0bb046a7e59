// SPDX-License-Identifier: Apache-2.0
// Asks libhdf5 what a shard is and where its blocks lie, without reading any sample.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "sandbox.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What the library says about one field of a shard.
struct ProbedField {
    std::vector<StoredBlock> blocks;  ///< global rows; without hashes
    std::uint64_t index_offset = 0;   ///< of /index/<field>; 0 if there is none as it should be
};

/// A shard's fields, and the filters that blocks of codec `filters` went through.
struct ProbedShard {
    std::vector<ProbedField> fields;
    BlockForms forms;
};

/// Opens shard number `number` of `manifest` at `path` in this process and finds every block; for
/// what was just written, and files whose hash is right.
/// Errors: E203, E204, E205; E207 (a field is missing); E208 (another data set's or another shape);
/// E212 (a filter, or chunks that cut rows).
ProbedShard probe_shard(const std::filesystem::path& path,
                        const Manifest& manifest,
                        std::size_t number);

/// The same for a file that may be anything. Errors: also those of Sandbox::look().
ProbedShard probe_untrusted_shard(Sandbox& sandbox,
                                  const std::filesystem::path& path,
                                  const Manifest& manifest,
                                  std::size_t number);

/// What a file begins like.
struct FileGuess {
    bool is_known = false;
    std::string meaning;  ///< "it begins like a zip archive", "it begins with the bytes 0a 0b"
    std::string way;      ///< a command that makes data of it, or what else to do
};

/// `made` is the ending of what comes out of a compressed file, such as ".h5". Errors: E201, E202.
FileGuess guess_of_file(const std::filesystem::path& path, std::string_view made = "");

/// Errors: E203 saying what the file begins with; E204 if the file is shorter than its own
/// superblock says, or is shorter than `expected_bytes` and has no readable superblock.
void check_is_whole_hdf5(const std::filesystem::path& path, std::uint64_t expected_bytes);

/// The version of a file's superblock, where that is beyond the ones that HDF5 1.10 to 1.14 know (0
/// to 3); nothing for others, and what is no HDF5. Errors: those of opening it.
std::optional<unsigned> newer_superblock(const std::filesystem::path& path);

/// Whether a file has HDF5's signature in a place where it may be. Errors: those of opening it.
bool is_hdf5(const std::filesystem::path& path);

}  // namespace lockstep
