// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts as words of commands that people copy from messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// In single quotes if a shell would split or change it; control characters, which may
/// be escapes of terminals, as bash's $'\\033' has them.
std::string shell_word(std::string_view text);

/// "mpirun -np 2 ..." with quotes if a shell needs them.
std::string shell_text(const std::vector<std::string>& argv);

}  // namespace lockstep
