// SPDX-License-Identifier: Apache-2.0
// What it costs to stream chunks that cut samples.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// How often each byte of `field` is expanded in an epoch of the order 'lanes': a chunk is, once
/// for each of the order's blocks that has rows of it. So it is with a block of two lanes, too,
/// where one rank reads both and has memory for what the second needs.
double times_expanded(const DatasetIndex& index, std::size_t field);

/// One line for each field whose chunks cut samples: how often that is, and what packing would
/// save.
std::vector<std::string> cut_costs(const DatasetIndex& index);

}  // namespace lockstep
