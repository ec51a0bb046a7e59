// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which steps of a run are traced.
#pragma once

#include "lockstep/core/options.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Steps from `first` to `last`, both included; last 0: none.
struct TraceSteps {
    std::int64_t first = 0, last = 0;
    bool operator==(const TraceSteps&) const = default;
};

/// Reads "steps=50-60", "steps=50" and "none". Errors: E103.
TraceSteps parse_trace_steps(const GivenValue& given);

/// What parse_trace_steps() reads.
std::string trace_steps_text(const TraceSteps& steps);

}  // namespace lockstep
