// SPDX-License-Identifier: Apache-2.0
// A file of one row a sample that all ranks write together.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/files.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

/// What such a file is: NPY, or HDF5 with one data set, "predictions".
enum class OutputFormat { npy, hdf5 };

/// By the file's ending. Errors: E103 for one that is neither's.
OutputFormat output_format(const std::filesystem::path& path);

/// f32 of `shape`, [samples, ...]; beside its place as .NAME.partial until it is whole. The same
/// values lie in either format, one behind the other.
class OutputFile {
  public:
    /// Collective. Errors: E103, as output_format(); E407 if it exists, E401.
    OutputFile(const Communicator& ranks,
               const std::filesystem::path& path,
               const std::vector<std::int64_t>& shape);

    /// The row of one sample. Errors: E402, E405.
    void write(std::uint64_t sample, std::span<const float> row);

    /// Collective. Every row was written by some rank.
    void finish();

  private:
    Communicator ranks_;
    std::filesystem::path path_, partial_;
    std::uint64_t data_offset_ = 0;
    UniqueFd fd_;
};

}  // namespace lockstep
