// SPDX-License-Identifier: Apache-2.0
// Turns what a file says about a data set into blocks to read; believes nothing that it says.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "file_facts.hpp"
#include "format/widening.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Which rows of which file a data set holds.
struct RowsInFile {
    std::uint64_t first_sample = 0, samples = 0, row_bytes = 0;
    std::uint64_t file_bytes = 0;
    std::uint32_t shard = 0;
    std::uint32_t contiguous_rows = 1;  ///< rows of a block where there are no chunks
    Widening widening = Widening{};     ///< of elements that are not stored as the field has them

    std::optional<Unpacking> unpacking = {};  ///< of numbers that stand for others; no widening

    /// Of `decoded` bytes that went through no filter.
    std::uint64_t stored_bytes(std::uint64_t decoded) const {
        if (unpacking) return unpacking->stored_bytes_of(decoded);
        return widening.is_known() ? widening.stored_bytes_of(decoded) : decoded;
    }
};

/// What becomes of elements that no field has as they are; unknown of those that are one's.
Widening widening_of(const DatasetFacts& facts);

/// What makes class numbers, i64, of whole or floating numbers of any width; unknown of i64, and of
/// what are no usual numbers.
Widening label_widening_of(const DatasetFacts& facts);

/// Why the numbers of a data set cannot be what CF's attributes say they stand for; "" if they can.
std::string unpacking_fault(const DatasetFacts& facts);

/// What they stand for, of a data set without unpacking_fault(); `instead` of what is missing.
Unpacking unpacking_of(const DatasetFacts& facts, std::optional<double> instead);

/// "32008 (bitshuffle)": a filter, for people.
std::string filter_name(std::uint64_t kind);

/// Why blocks cannot be read: by a filter that others read, because they lie in other files, or for
/// good.
enum class BlockTrouble { none, unknown_filter, elsewhere, unreadable };

/// Blocks without hashes; or why they cannot be read, in a few words, too.
struct FoundBlocks {
    std::vector<StoredBlock> blocks;
    BlockTrouble trouble = BlockTrouble::none;
    std::string fault;
};

/// `facts.size` is that of `rows` already. What blocks have in common is looked up in `forms`, and
/// added.
FoundBlocks blocks_of(const DatasetFacts& facts, const RowsInFile& rows, BlockForms& forms);

}  // namespace lockstep
