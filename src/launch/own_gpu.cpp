// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/own_gpu.hpp"

#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/launch/live_placement.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double deadline_s = 30;

/// Collective. The rank's seat, or none where ranks cannot be placed: checks of their own say why.
RankSeat planned_seat(const Communicator& ranks, const RankFacts& facts) {
    try {
        const LivePlacement live =
            place_live(ranks, facts, {.gpus = SharingRule::allow, .cores = SharingRule::allow});
        return live.plan.seats[static_cast<std::size_t>(ranks.rank())];
    } catch (const Error&) {
        return {};
    }
}

}  // namespace

void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine) {
    const RankSeat seat = planned_seat(ranks, facts);
    const bool is_able = mine.plan.uses_gpus && mine.program.cuda_fault.empty() &&
                         !seat.gpu.empty() && !seat.gpu_uuid.starts_with("MIG-");
    const Communicator able = ranks.split(is_able ? 0 : 1);
    if (!is_able) return;
    const auto bootstrap = make_bootstrap(able);
    try {
        mine.gpu = try_gpu({seat.gpu, seat.gpu_uuid}, *bootstrap, deadline_s).pci;
    } catch (const Error& error) {
        const bool is_anothers = kind_of(error) == ErrorKind::peer_gave_up;
        if (!is_anothers) mine.program.cuda_fault = error.what();
    }
}

}  // namespace lockstep
