// SPDX-License-Identifier: Apache-2.0
// Where the chunks of a data set lie, in time proportional to their number.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

namespace lockstep::h5 {

/// The chunks of `dataset`, opened through probing_access(), whose size and chunk are those of
/// `facts`: the driver notes where the library would read each. Not H5Dchunk_iter, which 1.10.8
/// lacks and which forgets in some versions what comes before the superblock. A chunk that is
/// missing or impossible is a `fault`.
ChunkFacts find_chunks(const Handle& dataset, const DatasetFacts& facts);

}  // namespace lockstep::h5
