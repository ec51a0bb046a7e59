// SPDX-License-Identifier: Apache-2.0
/// @file
/// Blocks of stored rows, and the selection of samples that is used.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Rows that are stored side by side; `first` is a global sample number.
struct RowBlock {
    std::uint64_t first = 0;     ///< global sample number
    std::uint32_t rows = 0;      ///< number of rows
    std::uint32_t left_out = 0;  ///< number of rows that are not in the order
    std::uint32_t used() const { return rows - left_out; }  ///< number of rows in the order
    bool operator==(const RowBlock&) const = default;
};

/// The samples of an order: all, or those on one side of a split by XXH3-64 of a sample's number (8
/// bytes, little-endian). So a sample's part depends only on its number and the share.
struct SamplePart {
    /// first: hashes below the bound; second: the others.
    enum class Side { all, first, second };
    Side side = Side::all;    ///< side that is in the order
    std::uint64_t bound = 0;  ///< hashes below it are on the first side

    static SamplePart first(double share);   ///< about `share`, above 0 and below 1, of all
    static SamplePart second(double share);  ///< the others
    bool holds(std::uint64_t sample) const;  ///< true if the order has it
    bool operator==(const SamplePart&) const = default;
};

/// Returns `blocks` with the number of left out rows of each, and without those that `part` leaves
/// out as a whole.
std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part);

/// Returns the number of samples of `blocks` in `part`.
std::uint64_t samples_in(const std::vector<RowBlock>& blocks, const SamplePart& part);

/// Returns [0, samples) in blocks of `block_rows`; the last may have fewer.
std::vector<RowBlock> row_blocks(std::uint64_t samples, std::uint32_t block_rows);

}  // namespace lockstep
