// SPDX-License-Identifier: Apache-2.0
// Files of a model's outputs.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// NPY, with names beside it in a JSON; HDF5 with data set "predictions", and with "names" of rows
/// and "classes" where they have some; CSV with a line for each sample.
enum class OutputFormat { npy, hdf5, csv };

/// By the file's ending. Errors: E103.
OutputFormat output_format(const fs::path& path);

/// What a file of outputs has.
struct OutputLayout {
    ElementType element = ElementType::f32;  ///< f32 or i64
    std::vector<std::int64_t> shape;         ///< [samples, ...]
    std::vector<std::string> row_names;      ///< by sample, on rank 0; empty: their numbers
    std::vector<std::string> class_names;    ///< empty: their numbers
    // Of a CSV:
    std::vector<std::string> columns;    ///< titles: of the names of rows, then of each number
    std::vector<std::string> classes{};  ///< of numbers that are classes; empty: numbers
};

/// Where names are that `layout` has, for people, on rank 0; "" if there are none or in a CSV.
std::string names_text(const fs::path& outputs, const OutputLayout& layout);

/// A file of one row a sample that all ranks write together; beside its place as .NAME.partial
/// until it is whole. Rank 0 makes a CSV of the rows at the end.
class OutputFile {
  public:
    /// Collective. Errors: E103, as output_format(); E407 if it exists, E401.
    OutputFile(const Communicator& ranks, const fs::path& path, OutputLayout layout);

    /// The row of one sample. Errors: E402, E405.
    void write(std::uint64_t sample, std::span<const std::byte> row);

    /// Collective. Every row was written by some rank.
    void finish();

  private:
    fs::path written_as_csv() const;

    Communicator ranks_;
    fs::path path_, partial_;
    OutputLayout layout_;
    std::uint64_t data_offset_ = 0;
    UniqueFd fd_;
};

}  // namespace lockstep
