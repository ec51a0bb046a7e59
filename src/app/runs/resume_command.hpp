// SPDX-License-Identifier: Apache-2.0
// The command that goes on with a run.
#pragma once

#include "lockstep/run/run_status.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Options in other values: {"io-threads", "4"}.
using ChangedOptions = std::vector<std::pair<std::string, std::string>>;

/// The command that made `run`, by what run.json says of its options' origins, as words for a
/// shell; "" where it does not say. `program`: "lockstep", or a user's own. `changed` stand in it
/// as well, in place of what was given. It goes on with the run where that is now, from whichever
/// folder it is given.
std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedOptions& changed = {});

/// The same, where the newest start is `start` and has ended before the run was complete; else "".
std::string resumption(const RunStatus& status, std::int64_t start, const std::string& program);

}  // namespace lockstep
