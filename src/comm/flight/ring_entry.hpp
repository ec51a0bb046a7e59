// SPDX-License-Identifier: Apache-2.0
// Reads one entry of a ring, in the writer's memory or in a copy of its file.
#pragma once

#include "lockstep/comm/flight_recorder.hpp"

#include "flight/ring_format.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// Entry `index`, or nothing while it is being written, was overwritten, or makes no sense.
std::optional<FlightEntry> whole_entry(const RingEntry& entry, std::uint64_t index);

}  // namespace lockstep
