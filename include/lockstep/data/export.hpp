// SPDX-License-Identifier: Apache-2.0
/// @file
/// A data set, or some samples of it, as NPY files that any tool reads.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

/// What to write, and where.
struct ExportOptions {
    std::filesystem::path output;        ///< the folder that is made
    std::vector<std::uint64_t> samples;  ///< by global number, in this order; empty: all
};

/// Called with samples done and in all. Throwing from it cancels and leaves nothing behind.
using ExportReport = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes FIELD.npy for each field, rows in stored order or as asked for, through a folder beside
/// `output` that is renamed when all is written and flushed. Every block's hash is checked. Memory
/// does not grow with the data set.
/// Errors: E407 (output exists), E102 (no such sample), E401, E403, E405; E213 and kin (reading).
void export_dataset(std::shared_ptr<const DatasetIndex> index,
                    const ExportOptions& options,
                    const ExportReport& report = {});

}  // namespace lockstep
