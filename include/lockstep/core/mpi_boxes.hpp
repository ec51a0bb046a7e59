// SPDX-License-Identifier: Apache-2.0
/// @file
/// How Open MPI's programs write to stderr: a message is a box, lines between two rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Whether a line is the first or last of a box: dashes alone.
bool is_box_rule(std::string_view line);

/// Whether a line has nothing to read.
bool is_blank_line(std::string_view line);

/// The first sentence of the box's first paragraph, in single spaces.
std::string box_title(const std::vector<std::string>& box);

/// "rank 3 on n2", if a box's title says that mpirun noticed how this rank ended; else "".
std::string rank_of_end(std::string_view title);

/// Whether a launcher's line, or its box's title, only reports an end that other lines explain.
bool is_launcher_noise(std::string_view text);

}  // namespace lockstep
