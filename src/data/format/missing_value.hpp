// SPDX-License-Identifier: Apache-2.0
// The error of a value that is not there, wherever it is met.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// E236: row `row` of `field` in `file`, `sample` of the data set, has a missing value.
Error missing_value(const Field& field,
                    const std::filesystem::path& file,
                    std::uint64_t row,
                    std::uint64_t sample);

}  // namespace lockstep
