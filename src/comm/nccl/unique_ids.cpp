// SPDX-License-Identifier: Apache-2.0
#include "nccl/unique_ids.hpp"

namespace lockstep {
namespace {

constexpr int most_for_one_id = 256;  // above, NCCL staggers ranks (NCCL_UID_STAGGER_THRESHOLD)
constexpr int ranks_of_an_id = 128;

/// The guide's rankHasRoot(): the first `ranks % ids` ids have one rank more than the others.
bool makes_id(int rank, int ranks, int ids) {
    const int more = ranks % ids, each = ranks / ids;
    const int limit = more * (each + 1);
    return rank < limit ? rank % (each + 1) == 0 : (rank - limit) % each == 0;
}

}  // namespace

int unique_id_count(int ranks, bool has_scalable_init) {
    if (ranks <= most_for_one_id || !has_scalable_init) return 1;
    return (ranks + ranks_of_an_id - 1) / ranks_of_an_id;
}

std::vector<int> unique_id_makers(int ranks, int ids) {
    std::vector<int> makers;
    for (int rank = 0; rank < ranks; ++rank)
        if (makes_id(rank, ranks, ids)) makers.push_back(rank);
    return makers;
}

}  // namespace lockstep
