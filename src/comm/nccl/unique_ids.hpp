// SPDX-License-Identifier: Apache-2.0
// Which ranks make the unique ids that a communicator starts from.
#pragma once

#include <vector>

namespace lockstep {

/// One id serves all ranks up to 256 of them; beyond, where the library can take several
/// (ncclCommInitRankScalable), one for each 128, so that no rank is asked by more than that many.
int unique_id_count(int ranks, bool has_scalable_init);

/// The ranks that make an id, in the order of the ids (NCCL's user guide, "Creating a communicator
/// using multiple ncclUniqueIds").
std::vector<int> unique_id_makers(int ranks, int ids);

}  // namespace lockstep
