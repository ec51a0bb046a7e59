// SPDX-License-Identifier: Apache-2.0
// Finds the chunks of a data set in time proportional to their number.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

namespace lockstep::h5 {

/// Returns the chunks of `dataset`, opened through probing_access(), with the size and chunk of
/// `facts`: the driver notes where the library would read each. H5Dchunk_iter is not used: 1.10.8
/// lacks it, and some versions ignore the bytes before the superblock. A missing or impossible
/// chunk is a `fault`.
ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts);

}  // namespace lockstep::h5
