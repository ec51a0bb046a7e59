// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads every byte of a data set and reports damage.
#pragma once

#include "lockstep/data/foreign.hpp"
#include "lockstep/data/team.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A fault of a data set.
struct Finding {
    std::string code;          ///< code of the error catalogue
    std::string file;          ///< in the data set's folder
    std::string field;         ///< "" if the damage is not within one field
    std::int64_t block = -1;   ///< number within the shard; -1 if not within one block
    std::uint64_t offset = 0;  ///< offset in the file
    std::uint64_t bytes = 0;   ///< number of bytes; 0 if unknown
    std::string text;          ///< one sentence with all of this
};

/// The progress of a check; on a team, this member's part, scaled to the whole.
struct VerifyProgress {
    std::uint64_t done = 0;   ///< bytes
    std::uint64_t total = 0;  ///< bytes
    std::string file;         ///< file that is being checked
};

/// Called from time to time. An exception thrown from it ends the check.
using VerifyReport = std::function<void(const VerifyProgress&)>;

/// The threads and processes that check. Findings do not depend on them.
struct VerifyOptions {
    int threads = 1;  ///< threads of each member; 0: one for each core
    Team team;        ///< shards are divided among its members
};

/// Collective: all members get the same. Checks the manifest's digest, every shard's size and hash,
/// every index, every block's hash and decoding, row counts and the range of labels. Every byte is
/// read once. An empty result means no damage. libhdf5 reads only files whose hash is right.
/// Errors: E201, E216 if there is no data set at all.
std::vector<Finding> verify_dataset(const std::filesystem::path& folder,
                                    const VerifyReport& report = {},
                                    const VerifyOptions& options = {});

/// Collective. Checks the data of `--data` and `--field` in the same way. For foreign files, where
/// `fields` is not empty, each block is read and expanded, compared with its own checksums
/// (fletcher32), and checked for labels that are no classes. Errors: those of DatasetIndex::open(),
/// which finds faults of HDF5's own structures.
std::vector<Finding> verify_data(const std::filesystem::path& where,
                                 const std::vector<FieldMapping>& fields,
                                 const VerifyReport& report = {},
                                 const VerifyOptions& options = {});

}  // namespace lockstep
