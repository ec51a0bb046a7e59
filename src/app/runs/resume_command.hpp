// SPDX-License-Identifier: Apache-2.0
// The command that continues a run.
#pragma once

#include "lockstep/run/report.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Returns the command that continues `run` with `changed` options, as words for a shell. If "run"
/// is among them, the one that made it, from the origins of its options in run.json, for another
/// run; "" if they are unknown. `program`: "lockstep", or a user's own. It works from any folder.
std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedSettings& changed = {});

/// Returns the same if the newest start is `start` and ended before the run was complete; else "".
std::string resumption(const RunStatus& status, std::int64_t start, const std::string& program);

}  // namespace lockstep
