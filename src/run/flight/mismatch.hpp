// SPDX-License-Identifier: Apache-2.0
// Finds ranks that call different collectives under the same number.
#pragma once

#include "flight/scene.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// The first number with different calls: the call of most ranks, and the ranks with another one.
struct Mismatch {
    std::uint32_t channel = 0;
    std::uint64_t seq = 0;
    FlightCall usual, other;  ///< other: call of the first culprit
    Traces culprits, rest;
    bool is_order() const { return usual.op != other.op || usual.bucket != other.bucket; }
};
std::optional<Mismatch> find_mismatch(const Scene& scene);

}  // namespace lockstep
