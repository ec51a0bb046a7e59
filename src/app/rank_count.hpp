// SPDX-License-Identifier: Apache-2.0
// Checks --np and --hosts below a launcher.
#pragma once

#include "command.hpp"

#include <string>

namespace lockstep {

/// Collective. Below a launcher, --np and --hosts start nothing. Errors: E604 on all ranks if they
/// ask for another number of ranks than the launcher started.
void check_rank_count(const Invocation& call, const std::string& hosts = {});

}  // namespace lockstep
