// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows for measurements: images that nobody needs but that compress as real ones do.
#pragma once

#include "lockstep/data/row_source.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// What to make up.
struct ScratchShape {
    std::uint64_t samples = 0;                      ///< how many
    std::vector<std::int64_t> image = {3, 64, 64};  ///< C, H, W
    std::int64_t classes = 10;                      ///< of labels
};

/// `images` u8 and `labels` i64, the same for equal shapes: smooth shapes before a black ground
/// with noise in the lower bits. About 1.3 times smaller by deflate, 1.2 by lz4, like photographs
/// of that size. As many different images as make 32 MiB; then they repeat.
std::unique_ptr<RowSource> scratch_rows(const ScratchShape& shape);

}  // namespace lockstep
