// SPDX-License-Identifier: Apache-2.0
// The error of those who waited for others in vain.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// Collective. Who has not called this too within the deadline; empty if all did.
std::vector<int> ranks_not_here_within(const Communicator& ranks, double deadline_s);

/// Error E630: `missing` did not come to `purpose` within `deadline_s`.
Error missing_ranks_error(std::span<const int> missing,
                          std::string_view purpose,
                          double deadline_s);

}  // namespace lockstep
