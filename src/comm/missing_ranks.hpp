// SPDX-License-Identifier: Apache-2.0
// The error of those who waited for others in vain.
#pragma once

#include "lockstep/core/error.hpp"

#include <span>
#include <string_view>

namespace lockstep {

/// Error E630: `missing` did not come to `purpose` within `deadline_s`.
Error missing_ranks_error(std::span<const int> missing,
                          std::string_view purpose,
                          double deadline_s);

}  // namespace lockstep
