// SPDX-License-Identifier: Apache-2.0
// Makes an index of foreign HDF5 files.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "contents.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// Returns the folder that all files lie below, so that they have names within one.
fs::path common_folder(const std::vector<fs::path>& files);

/// Returns the files without links in their paths. Errors: those of opening them.
std::vector<fs::path> canonical(std::vector<fs::path> files);

/// Checks that there are fields, each with a name of its own. Errors: E235.
void check_fields(const std::vector<FieldMapping>& fields);

/// Warnings of the guarantees that packed shards have and these files lack.
enum class Telling { warnings, nothing };

/// What an opening is part of, and what it says.
struct OpeningOptions {
    Telling telling = Telling::warnings;
    const AskedFiles* whole = nullptr;  ///< for the command that packs; null: these files are all
    std::uint32_t block_rows = 0;       ///< rows of a block; 0: as the largest field has them
    std::optional<std::size_t> warned_of = {};  ///< files that a warning names; unset: all of these
};

/// Opens files that have all fields. Errors: as DatasetIndex::open_foreign().
DatasetIndex open_files(const std::vector<fs::path>& files,
                        const std::vector<FieldMapping>& fields,
                        const OpeningOptions& options = {});

/// Returns what a data set of a file is as `field`.
Candidate candidate_of(const fs::path& file, const FieldMapping& field);

}  // namespace lockstep
