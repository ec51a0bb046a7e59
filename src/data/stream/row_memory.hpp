// SPDX-License-Identifier: Apache-2.0
// Memory for rows of all fields, each field from a line of its own on.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// What `rows` rows need.
std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows);

/// The fields' parts of `memory`, which has as much, each with room for exactly `rows`.
std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory);

}  // namespace lockstep
