// SPDX-License-Identifier: Apache-2.0
// What this process and machine allow, asked before mpirun, which says less or nothing.
#pragma once

namespace lockstep {

/// Errors: E601 where `ranks` are more than the cores of this process.
void check_cores(int ranks);

/// Raises the soft limit of open files where `ranks` of this node need more. Errors: E693 where the
/// hard limit is too low, or files may not be as large as Open MPI's own.
void settle_limits(int ranks);

}  // namespace lockstep
