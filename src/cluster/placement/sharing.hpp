// SPDX-License-Identifier: Apache-2.0
// What is said of two ranks on one core.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// E609. `each`: cores that each rank could have, for the line that would be right.
Error shared_core(const RankSeat& first, const RankSeat& second, int cpu, int each);

}  // namespace lockstep
