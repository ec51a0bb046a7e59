// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the samples of an epoch are ordered, by name: a run is told it and its checkpoints keep it.
#pragma once

#include <array>
#include <string_view>

namespace lockstep {

/// How an epoch is shuffled.
enum class OrderKind {
    lanes,       ///< shuffled by blocks, lanes and windows; needs memory for one window per lane
    uniform,     ///< one permutation of everything; needs memory for the whole data set
    sequential,  ///< as stored
};
/// Its words, by kind.
inline constexpr std::array<std::string_view, 3> order_names{"lanes", "uniform", "sequential"};

}  // namespace lockstep
