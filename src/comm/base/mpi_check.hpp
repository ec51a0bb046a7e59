// SPDX-License-Identifier: Apache-2.0
// MPI return codes as errors.
#pragma once

#include <string_view>

namespace lockstep {

/// Throws E620 with MPI's own text unless `result` is MPI_SUCCESS; `call` is "MPI_Bcast".
void check_mpi(int result, std::string_view call);

}  // namespace lockstep
