// SPDX-License-Identifier: Apache-2.0
// Pairs of rows and columns with the least sum of costs.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Row r gets column result[r], each column at most once; `costs[row][column]` with no more rows
/// than columns, none negative. Among equal sums, rows and columns keep their order as far as it
/// goes. Up to 16 rows the least sum (Hungarian method, Kuhn 1955; shortest augmenting paths,
/// O(rows^2 * columns)); beyond, row by row the cheapest column left.
std::vector<int> cheapest_pairs(const std::vector<std::vector<std::int64_t>>& costs);

}  // namespace lockstep
