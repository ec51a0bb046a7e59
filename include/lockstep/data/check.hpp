// SPDX-License-Identifier: Apache-2.0
/// @file
/// Looks at data: describes them for users and programs, and finds what is damaged.
#pragma once

#include "lockstep/data/foreign.hpp"
#include "lockstep/data/team.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A job that would stream the data set.
struct JobShape {
    int ranks = 1, nodes = 1;
    std::int64_t batch = 128;
    int lanes = 64, window_blocks = 5;
    std::uint64_t node_memory_bytes = 0;  ///< of a node; 0: not known
};

/// What is looked at, and how it is shown.
struct InspectOptions {
    std::vector<FieldMapping> fields;  ///< of foreign files; none: all their data sets
    Links links = Links::refused;      ///< of those
    std::optional<JobShape> job;
    std::size_t columns = 80;  ///< of the terminal; names and numbers that are longer stay whole
    fs::path sheet;            ///< PNG of some images that is written; "": none
    bool as_json = false;      ///< an object with the same facts, for programs
};

/// A packed data set, or foreign HDF5 files as foreign_files() takes them: data sets or fields
/// with type, size, storage, range and classes; how blocks lie and how well labels are mixed; what
/// the job gets; the command that trains on it, or why there is none and what to do about it.
/// Without fields the first file is listed, and up to 16 more are opened with the fields that are
/// suggested. Reads samples of rows, and says how many: of each data set at most 8 MiB, or one row,
/// or what lies in the same chunks; of labels some thousand blocks; labels of foreign files in
/// full. Damage to a data set is said, and hinders nothing else. Errors: those of opening; E217 (no
/// images for the sheet); those of writing it.
std::string inspect_data(const fs::path& where, const InspectOptions& options = {});

/// One thing that is wrong.
struct Finding {
    std::string code;          ///< code of the error catalogue
    std::string file;          ///< in the data set's folder
    std::string field{};       ///< "" if the damage is not within one field
    std::int64_t block = -1;   ///< number within the shard; -1 if not within one block
    std::uint64_t offset = 0;  ///< offset in the file
    std::uint64_t bytes = 0;   ///< number of bytes; 0 if unknown
    std::string text;          ///< one sentence with all of this
};

/// Called from time to time with bytes; on a team, `done` is this member's part, scaled to the
/// whole. An exception thrown from it ends the check.
using VerifyReport = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// The threads and processes that check. Findings do not depend on them.
struct VerifyOptions {
    int threads = 1;  ///< threads of each member; 0: one for each core
    Team team;        ///< shards are divided among its members
};

/// Collective: all members get the same. Checks the manifest's digest, every shard's size and hash,
/// every index, every block's hash and decoding, row counts and the range of labels. Every byte is
/// read once. An empty result means no damage. libhdf5 reads only files whose hash is right.
/// Errors: E201, E216 if there is no data set at all.
std::vector<Finding> verify_dataset(const fs::path& folder,
                                    const VerifyReport& report = {},
                                    const VerifyOptions& options = {});

/// Collective. Checks the data of `--data` and `--field` in the same way. For foreign files, where
/// `fields` is not empty, each block is read and expanded, compared with its own checksums
/// (fletcher32), and checked for labels that are no classes. Errors: those of DatasetIndex::open(),
/// which finds faults of HDF5's own structures.
std::vector<Finding> verify_data(const fs::path& where,
                                 const std::vector<FieldMapping>& fields,
                                 const VerifyReport& report = {},
                                 const VerifyOptions& options = {});

}  // namespace lockstep
