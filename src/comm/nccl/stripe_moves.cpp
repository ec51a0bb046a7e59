// SPDX-License-Identifier: Apache-2.0
#include "nccl/stripe_moves.hpp"

namespace lockstep {

std::vector<StripeSend> stripe_sends(const FlatLayout& layout,
                                     const TreePlan& plan,
                                     int rank,
                                     std::size_t bucket) {
    std::vector<StripeSend> sends;
    for (int owner = 0; owner < plan.ranks(); ++owner) {
        const FloatRange stripe = layout.stripe(bucket, owner, plan.ranks());
        if (owner == rank || stripe.size() == 0) continue;
        for (const Partial& partial : plan.partials_of_rank(rank))
            sends.push_back({owner, partial.slot, stripe});
    }
    return sends;
}

std::vector<StripeReceive> stripe_receives(const TreePlan& plan, int rank) {
    std::vector<StripeReceive> receives;
    for (const Partial& partial : plan.partials())
        if (partial.rank != rank) receives.push_back({partial.rank, receives.size()});
    return receives;
}

}  // namespace lockstep
