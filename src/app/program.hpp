// SPDX-License-Identifier: Apache-2.0
// From words to an exit code.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words);

/// run_command() with errors shown in the form users know. Under a launcher all ranks end with one
/// exit code, and an error that all ranks share is said once.
int run_program(const std::vector<std::string>& words);

}  // namespace lockstep
