// SPDX-License-Identifier: Apache-2.0
#include "flight/peers.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr int watched = 8;

}  // namespace

Peers::Peers(std::filesystem::path folder, int rank, int ranks) : folder_(std::move(folder)) {
    for (int step = 1; step < ranks && step <= watched; ++step)
        unknown_.push_back((rank + step) % ranks);
}

bool Peers::any_lost() {
    std::erase_if(unknown_, [&](int rank) {
        const auto process = read_ring_process(ring_path(folder_, rank));
        if (process) known_.emplace(rank, *process);
        return process.has_value();
    });
    return std::ranges::any_of(known_, [&](const auto& peer) {
        if (life_of(peer.second) != Life::gone) return false;
        return read_rank_trace(ring_path(folder_, peer.first)).end != FlightEnd::finished;
    });
}

}  // namespace lockstep
