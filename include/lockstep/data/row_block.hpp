// SPDX-License-Identifier: Apache-2.0
/// @file
/// Samples as they are stored: blocks of rows, and the part of them that is used.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Rows that are stored side by side; `first` is a global sample number.
struct RowBlock {
    std::uint64_t first = 0;                                ///< global sample number
    std::uint32_t rows = 0;                                 ///< from there on
    std::uint32_t left_out = 0;                             ///< of these, what an order has not
    std::uint32_t used() const { return rows - left_out; }  ///< what it has
    bool operator==(const RowBlock&) const = default;
};

/// Which samples an order has: all, or those on one side of a split by XXH3-64 of a sample's number
/// (8 bytes, little-endian). So a sample's part depends only on its number and the share.
struct SamplePart {
    /// Below the bound, or not.
    enum class Side { all, first, second };
    Side side = Side::all;    ///< that the order has
    std::uint64_t bound = 0;  ///< of hashes on the first side

    static SamplePart first(double share);   ///< about `share`, above 0 and below 1, of all
    static SamplePart second(double share);  ///< the others
    bool holds(std::uint64_t sample) const;  ///< whether the order has it
    bool operator==(const SamplePart&) const = default;
};

/// `blocks` with what `part` leaves out counted, without those that it leaves out whole.
std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part);

/// How many samples of `blocks` are in `part`.
std::uint64_t samples_in(const std::vector<RowBlock>& blocks, const SamplePart& part);

/// [0, samples) in blocks of `block_rows`; the last may have fewer.
std::vector<RowBlock> row_blocks(std::uint64_t samples, std::uint32_t block_rows);

}  // namespace lockstep
