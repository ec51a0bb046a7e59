// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chunks that hold parts of samples, as h5py's `chunks=True` makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// How chunks cut a field's samples: like tiles, those at the end beyond it.
///
///     sample [5, 6], chunk [3, 4]      0 0 0 0 1 1 . .      rows of chunk[0] samples are a band;
///                                      0 0 0 0 1 1 . .      its tiles are numbered as their
///                                      0 0 0 0 1 1 . .      beginnings are in memory, and each
///                                      2 2 2 2 3 3 . .      is one chunk
///                                      2 2 2 2 3 3 . .
///                                      . . . . . . . .      . padding
struct Cut {
    std::vector<std::uint64_t> sample, chunk;  ///< elements by dimension, without that of rows
    bool operator==(const Cut&) const = default;

    std::uint64_t tiles() const;           ///< of a band
    std::uint64_t chunk_elements() const;  ///< of one row of a chunk, with padding

    /// Elements of one row of a tile that belong to the sample.
    std::uint64_t elements_of(std::uint64_t tile) const;

    /// Whether every sample's size is at least 1, every chunk's too, and nothing overflows.
    bool is_sound() const;
};

/// Moves what belongs to samples to the front of `chunk`, `rows` rows of tile number `tile`,
/// padding left out, and returns it: [rows, elements_of(tile)].
std::span<std::byte> without_padding(const Cut& cut,
                                     std::uint64_t tile,
                                     std::size_t element_bytes,
                                     std::uint64_t rows,
                                     std::span<std::byte> chunk);

/// Copies rows of a tile without padding to where they belong in `samples`, as many whole rows.
void put_tile(const Cut& cut,
              std::uint64_t tile,
              std::size_t element_bytes,
              std::span<const std::byte> values,
              std::span<std::byte> samples);

}  // namespace lockstep
