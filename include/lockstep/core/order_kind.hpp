// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of the orders of an epoch's samples. A run is given one, and its checkpoints record it.
#pragma once

#include <array>
#include <string_view>

namespace lockstep {

/// The ways of shuffling an epoch.
enum class OrderKind {
    lanes,       ///< shuffled by blocks, lanes and windows; needs memory for one window per lane
    uniform,     ///< one permutation of all samples; needs memory for the whole data set
    sequential,  ///< stored order
};
/// The name of each kind.
inline constexpr std::array<std::string_view, 3> order_names{"lanes", "uniform", "sequential"};

}  // namespace lockstep
