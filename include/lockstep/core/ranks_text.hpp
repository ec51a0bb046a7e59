// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text of rank numbers for messages.
#pragma once

#include "lockstep/core/error.hpp"

#include <span>
#include <string>

namespace lockstep {

/// Returns "rank 3" or "ranks 0-2,5".
inline std::string ranks_text(std::span<const int> ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + fold_ranks(ranks);
}

}  // namespace lockstep
