// SPDX-License-Identifier: Apache-2.0
/// @file
/// Describes data for users and programs: content, layout, a command that trains on it, whether a
/// job fits it.
#pragma once

#include "lockstep/data/foreign.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
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
    std::size_t columns = 80;     ///< of the terminal; names and numbers that are longer stay whole
    std::filesystem::path sheet;  ///< PNG of some images that is written; "": none
    bool as_json = false;         ///< an object with the same facts, for programs
};

/// A packed data set, or foreign HDF5 files as foreign_files() takes them: data sets or fields
/// with type, size, storage, range and classes; how blocks lie and how well labels are mixed; what
/// the job gets; the command that trains on it, or why there is none and what to do about it.
/// Without fields the first file is listed, and up to 16 more are opened with the fields that are
/// suggested. Reads samples of rows, and says how many: of each data set at most 8 MiB, or one row,
/// or what lies in the same chunks; of labels some thousand blocks; labels of foreign files in
/// full. Damage to a data set is said, and hinders nothing else. Errors: those of opening; E217 (no
/// images for the sheet); those of writing it.
std::string inspect_data(const std::filesystem::path& where, const InspectOptions& options = {});

}  // namespace lockstep
