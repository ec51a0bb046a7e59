// SPDX-License-Identifier: Apache-2.0
// Merges the findings of a team's members.
#pragma once

#include "lockstep/data/team.hpp"
#include "lockstep/data/verify.hpp"

#include <vector>

namespace lockstep {

/// Collective. Returns the findings of all members, group after group, each in the order of the
/// members. All members have the same number of groups.
std::vector<Finding> merged(const Team& team, const std::vector<std::vector<Finding>>& mine);

}  // namespace lockstep
