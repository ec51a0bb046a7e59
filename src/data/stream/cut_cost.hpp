// SPDX-License-Identifier: Apache-2.0
// The cost of streaming chunks that cut samples.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Returns how often each byte of `field` is expanded in an epoch of the order 'lanes'. A chunk is
/// expanded once for each of the order's blocks that has rows of it. For a block of two lanes this
/// also holds if one rank reads both and has memory for the second's rows.
double times_expanded(const DatasetIndex& index, std::size_t field);

/// Returns one line for each field whose chunks cut samples: that number, and what packing would
/// save.
std::vector<std::string> cut_costs(const DatasetIndex& index);

}  // namespace lockstep
