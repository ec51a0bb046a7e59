// SPDX-License-Identifier: Apache-2.0
// Limits of this process under which mpirun neither starts its ranks nor says so.
#pragma once

namespace lockstep {

/// Raises the soft limit of open files where `ranks` of this node need more. Errors: E693 where the
/// hard limit is too low, or files may not be as large as Open MPI's own.
void settle_limits(int ranks);

}  // namespace lockstep
