// SPDX-License-Identifier: Apache-2.0
// An NPY file of one row a sample that all ranks write together.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/files.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

/// f32 of `shape`, [samples, ...]; beside its place as .NAME.partial until it is whole.
class OutputFile {
  public:
    /// Collective. Errors: E407 if it exists, E401.
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
