// SPDX-License-Identifier: Apache-2.0
// What a verdict looks for in the scene: ranks that call different collectives under the same
// number, and GPUs that stand still.
#pragma once

#include "lockstep/run/verdict.hpp"

#include "flight/scene.hpp"

#include <cstdint>
#include <optional>

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

/// Returns Trouble::none if no rank reports its GPU. The speaker is not filled in.
Verdict gpu_verdict(const Scene& scene);

}  // namespace lockstep
