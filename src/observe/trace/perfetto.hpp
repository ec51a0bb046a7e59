// SPDX-License-Identifier: Apache-2.0
// Slices as packets of Perfetto's trace format:
// https://perfetto.dev/docs/reference/trace-packet-proto and .../synthetic-track-event
#pragma once

#include "lockstep/observe/trace.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// The packets of one rank, `ahead_ns` taken off their times: a trace of its own, and together with
/// those of other ranks one trace, for a trace is its packets one behind the other.
std::string perfetto_packets(const StepTrace& trace, std::int64_t ahead_ns);

}  // namespace lockstep
