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

Life Peers::worst() {
    std::erase_if(unknown_, [&](int rank) {
        const auto process = read_ring_process(ring_path(folder_, rank));
        if (process) known_.emplace(rank, *process);
        return process.has_value();
    });
    Life worst = Life::running;
    for (const auto& [rank, process] : known_) {
        const Life life = life_of(process);
        if (life == Life::stopped) worst = Life::stopped;
        if (life != Life::gone) continue;
        if (read_rank_trace(ring_path(folder_, rank)).end != FlightEnd::finished) return Life::gone;
    }
    return worst;
}

}  // namespace lockstep
