// SPDX-License-Identifier: Apache-2.0
// Where the chunks of a data set lie, in time proportional to their number.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

namespace lockstep::h5 {

/// The chunks of `dataset`, opened through probing_access(), whose size and chunk are those of
/// `facts`: with H5Dchunk_iter where the library has it (1.10.10, 1.12.3, 1.14), else probed. A
/// chunk that is missing or impossible is a `fault`.
ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts);

/// The same, each time with the driver that notes where the library would read.
ChunkFacts probe_chunks(const Handle& dataset, const DatasetFacts& facts);

}  // namespace lockstep::h5
