// SPDX-License-Identifier: Apache-2.0
// Turns a file's description of a data set into blocks to read; checks every part of it.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "file_facts.hpp"
#include "format/widening.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The rows of a data set that a file holds.
struct RowsInFile {
    std::uint64_t first_sample = 0, samples = 0, row_bytes = 0, file_bytes = 0;
    std::uint32_t shard = 0;
    std::uint32_t contiguous_rows = 1;  ///< rows of a block if there are no chunks
    Widening widening{};  ///< conversion of elements that are not stored as the field has them
    std::optional<Unpacking> unpacking = {};  ///< conversion of packed numbers; excludes a widening

    /// Returns the stored size of `decoded` bytes without filters.
    std::uint64_t stored_bytes(std::uint64_t decoded) const {
        if (unpacking) return unpacking->stored_bytes_of(decoded);
        return widening.is_known() ? widening.stored_bytes_of(decoded) : decoded;
    }
};

/// Returns how many rows should be a block: those of a chunk, because what is shuffled as one
/// should be read as one. Many small chunks are taken together; chunks that cut rows are read in
/// parts.
std::uint32_t rows_of_blocks(const DatasetFacts& facts, std::uint64_t row_bytes);

/// Returns a filter's name for people: "32008 (bitshuffle)".
std::string filter_name(std::uint64_t kind);

/// The fault of values in other files than the one that is named.
inline constexpr const char* lies_elsewhere = "it is virtual, or its values lie in other files";

/// Blocks without hashes, or the reason why they cannot be read.
struct FoundBlocks {
    std::vector<StoredBlock> blocks;
    std::string fault;          ///< "" if they can
    bool lacks_filter = false;  ///< it is a filter that other programs have
};

/// Returns the blocks. `facts.size` is already that of `rows`. Common forms are looked up in
/// `forms`, and added.
FoundBlocks blocks_of(const DatasetFacts& facts, const RowsInFile& rows, BlockForms& forms);

}  // namespace lockstep
