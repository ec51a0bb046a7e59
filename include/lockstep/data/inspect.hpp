// SPDX-License-Identifier: Apache-2.0
// A data set described for people.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <string>

namespace lockstep {

/// Fields, shapes, sizes, blocks, compression, statistics, classes and shards, at most 80 columns.
std::string describe_dataset(const DatasetIndex& index);

}  // namespace lockstep
