// SPDX-License-Identifier: Apache-2.0
// The ranks that make the unique ids with which a communicator starts.
#pragma once

#include <vector>

namespace lockstep {

/// Returns the number of ids. One serves up to 256 ranks. Beyond, if the library supports several
/// (ncclCommInitRankScalable), there is one per 128 ranks, so that no rank is contacted by more
/// than that.
int unique_id_count(int ranks, bool has_scalable_init);

/// Returns the ranks that make an id, in the order of the ids (NCCL's user guide, "Creating a
/// communicator using multiple ncclUniqueIds").
std::vector<int> unique_id_makers(int ranks, int ids);

}  // namespace lockstep
