// SPDX-License-Identifier: Apache-2.0
// What the members of a team found, put together.
#pragma once

#include "lockstep/data/team.hpp"
#include "lockstep/data/verify.hpp"

#include <vector>

namespace lockstep {

/// Collective. Everyone's findings, group after group, each in the order of the members. All have
/// as many groups.
std::vector<Finding> merged(const Team& team, const std::vector<std::vector<Finding>>& mine);

}  // namespace lockstep
