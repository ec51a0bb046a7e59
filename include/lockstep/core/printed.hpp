// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether results have reached stdout.
#pragma once

namespace lockstep {

/// For the end of a command whose result is what it printed. Errors: E405, E402 if print_once()
/// could not write all; a reader that closed the pipe, as `head`, is no error.
void check_printed();

}  // namespace lockstep
