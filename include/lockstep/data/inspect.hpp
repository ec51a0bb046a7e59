// SPDX-License-Identifier: Apache-2.0
/// @file
/// Describes data for users and programs: content, layout, a command that trains on it, and whether
/// a job fits it.
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
    std::uint64_t node_memory_bytes = 0;  ///< memory of a node; 0: unknown
};

/// Settings of an inspection.
struct InspectOptions {
    std::vector<FieldMapping> fields;  ///< fields of foreign files; none: all their data sets
    Links links = Links::refused;      ///< rule for their links
    std::optional<JobShape> job;
    std::size_t columns = 80;     ///< width of the terminal; longer names and numbers stay whole
    std::filesystem::path sheet;  ///< PNG to write with some images; "": none
    bool as_json = false;         ///< an object with the same facts, for programs
};

/// Describes a packed data set, or foreign HDF5 files as foreign_files() takes them. The text has
/// data sets or fields with type, size, storage, range and classes; the layout of blocks and the
/// mixing of labels; the share of the job; and the command that trains on it, or the reason why
/// there is none and what to do. Without fields the first file is listed, and up to 16 more are
/// opened with the suggested fields. Samples of rows are read, and their number is reported: of
/// each data set at most 8 MiB, or one row, or the rows of one chunk; of labels some thousand
/// blocks; labels of foreign files in full. Damage to a data set is reported and does not stop the
/// rest. Errors: those of opening; E217 (no images for the sheet); those of writing it.
std::string inspect_data(const std::filesystem::path& where, const InspectOptions& options = {});

}  // namespace lockstep
