// SPDX-License-Identifier: Apache-2.0
// Finds out where HDF5 keeps raw data, by letting the library walk its own index.
//
// HDF5 1.10.8 has no H5Dchunk_iter, and its chunk queries cost O(number of chunks) each. A file
// driver that passes metadata reads through and only notes the address of raw reads finds 20,000
// chunks in 5 ms.
#pragma once

#include "h5.hpp"

#include <cstdint>
#include <vector>

#include <hdf5.h>

namespace lockstep::h5 {

/// Where the library would have read.
struct RawRead {
    std::uint64_t offset = 0, bytes = 0;
};

/// File access properties with the probing driver.
Handle probing_access();

/// A chunk as stored: its place, and whether filters were skipped for it.
struct ChunkPlace {
    std::uint64_t offset = 0, bytes = 0;
    bool is_filtered = true;
};

/// The chunk of `dataset` (opened through probing_access) that begins at row `row`; its stored
/// size is at most `limit` bytes. `rank` is the data set's number of dimensions.
/// Returns false if the library does not find it.
bool find_chunk(
    const Handle& dataset, int rank, std::uint64_t row, std::uint64_t limit, ChunkPlace& place);

}  // namespace lockstep::h5
