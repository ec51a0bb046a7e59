// SPDX-License-Identifier: Apache-2.0
// The command that goes on with a run.
#pragma once

#include "lockstep/core/files.hpp"

#include <string>

namespace lockstep {

/// The command that made `run`, by what run.json says of its options' origins, as words for a
/// shell; "" where it does not say. `program`: "lockstep", or a user's own.
std::string resume_command(const fs::path& run, const std::string& program);

}  // namespace lockstep
