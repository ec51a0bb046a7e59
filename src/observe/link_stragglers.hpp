// SPDX-License-Identifier: Apache-2.0
// Nodes whose links all ranks wait for.
#pragma once

#include "lockstep/observe/stragglers.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// Of the step, that others lose: less makes no straggler.
inline constexpr double least_straggler_share = 0.05;

/// See find_stragglers(). The worst is first.
std::vector<Straggler> link_stragglers(std::span<const RankSteps> ranks);

}  // namespace lockstep
