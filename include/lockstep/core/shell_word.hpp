// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts as words of commands that people copy from messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the text in single quotes if a shell would split or change it. Control characters, which
/// may be terminal escapes, are written as in bash's $'\\033'.
std::string shell_word(std::string_view text);

/// Returns "mpirun -np 2 ...", with quotes where a shell needs them.
std::string shell_text(const std::vector<std::string>& argv);

}  // namespace lockstep
