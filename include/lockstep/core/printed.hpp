// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that results have reached stdout.
#pragma once

namespace lockstep {

/// Called at the end of a command that prints its result. Errors: E405, E402 if print_once() could
/// not write everything. A reader that closed the pipe, such as `head`, is no error.
void check_printed();

}  // namespace lockstep
