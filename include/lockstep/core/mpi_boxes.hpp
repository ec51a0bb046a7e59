// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages of Open MPI's programs on stderr: each is a box, that is lines between two rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns true for the first or last line of a box: only dashes.
bool is_box_rule(std::string_view line);

/// Returns true for a line without visible text.
bool is_blank_line(std::string_view line);

/// Returns the first sentence of the box's first paragraph, in single spaces.
std::string box_title(const std::vector<std::string>& box);

/// Returns "rank 3 on n2" if a box's title says that mpirun noticed how this rank ended; else "".
std::string rank_of_end(std::string_view title);

/// Returns true for a launcher's line, or a box's title, that reports an end which other lines
/// explain.
bool is_launcher_noise(std::string_view text);

}  // namespace lockstep
