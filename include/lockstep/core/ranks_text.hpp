// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks in messages.
#pragma once

#include "lockstep/core/error.hpp"

#include <span>
#include <string>

namespace lockstep {

/// "rank 3", "ranks 0-2,5".
inline std::string ranks_text(std::span<const int> ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + fold_ranks(ranks);
}

}  // namespace lockstep
