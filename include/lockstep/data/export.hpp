// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exports a data set, or some of its samples, as NPY files.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

/// Selection and target of an export.
struct ExportOptions {
    std::filesystem::path output;        ///< new folder
    std::vector<std::uint64_t> samples;  ///< by global number, in this order; empty: all
};

/// Called with the numbers of finished samples and of all samples. An exception thrown from it
/// cancels the export, and no files remain.
using ExportReport = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes FIELD.npy for each field, with rows in stored order or in the given one. They are written
/// to a folder beside `output` that is renamed when all is written and flushed. Every block's hash
/// is checked. Memory does not grow with the data set. Errors: E407 (output exists), E102 (no such
/// sample), E401, E403, E405; E213 and similar (reading).
void export_dataset(std::shared_ptr<const DatasetIndex> index,
                    const ExportOptions& options,
                    const ExportReport& report = {});

}  // namespace lockstep
