// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_state.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

using enum NcclState;

constexpr auto transitions = std::to_array<std::pair<NcclState, NcclState>>({
    {unset, initializing},
    {initializing, ready},
    {initializing, failed},
    {initializing, aborting},
    {ready, failed},
    {ready, finalizing},
    {ready, aborting},
    {failed, aborting},
    {finalizing, finalized},
    {finalizing, failed},
    {finalizing, aborting},
    {finalized, destroyed},
    {finalized, aborting},
    {aborting, aborted},
});

constexpr std::array<std::string_view, 9> state_names = {"unset",
                                                         "initializing",
                                                         "ready",
                                                         "failed",
                                                         "aborting",
                                                         "aborted",
                                                         "finalizing",
                                                         "finalized",
                                                         "destroyed"};

}  // namespace

std::string_view name_of(NcclState state) {
    return state_names[static_cast<std::size_t>(state)];
}

bool may_follow(NcclState from, NcclState to) {
    return std::ranges::find(transitions, std::pair(from, to)) != transitions.end();
}

}  // namespace lockstep
