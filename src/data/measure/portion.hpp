// SPDX-License-Identifier: Apache-2.0
// The part of a data set that a measurement reads, cut into pieces of work.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

/// Rows of one field and one shard that are stored side by side.
struct RowSpan {
    std::size_t field = 0;
    std::uint32_t shard = 0;
    std::uint64_t first = 0, rows = 0;
};

inline constexpr std::uint64_t request_bytes = 1u << 20;

/// At most one request of one file.
struct FilePiece {
    std::uint32_t shard = 0;
    std::uint64_t offset = 0, bytes = 0;
};

/// The first rows of a data set and where they are stored.
struct Portion {
    std::uint64_t rows = 0;
    std::uint64_t decoded_bytes = 0, stored_bytes = 0;
    std::uint64_t largest_span = 0;  ///< decoded bytes
    std::vector<RowSpan> spans;      ///< neighbouring blocks up to 1 MiB stored, fields by turns
    std::vector<FilePiece> files;    ///< the same bytes, ascending in each file
};

/// As many rows as fit into `limit_bytes`, decoded; at least one block.
Portion first_rows(const DatasetIndex& index, std::uint64_t limit_bytes);

}  // namespace lockstep
