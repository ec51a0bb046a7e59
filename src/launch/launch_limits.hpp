// SPDX-License-Identifier: Apache-2.0
// Limits of this process and machine, checked before mpirun, which reports less or nothing.
#pragma once

namespace lockstep {

/// Checks the number of ranks. Errors: E601 if `ranks` exceed the cores of this process.
void check_cores(int ranks);

/// Raises the soft limit of open files if `ranks` of this node need more. Errors: E693 if the hard
/// limit is too low, or if the limit of file sizes is below Open MPI's files.
void settle_limits(int ranks);

}  // namespace lockstep
