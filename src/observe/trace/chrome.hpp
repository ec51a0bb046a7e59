// SPDX-License-Identifier: Apache-2.0
// Slices as events of Chrome's JSON format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include "lockstep/observe/trace.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// The events of one rank, one a line with a comma behind each, as process `pid`: names of process
/// and lanes, and slices, `ahead_ns` taken off their times.
std::string chrome_events(const StepTrace& trace, std::int64_t pid, std::int64_t ahead_ns);

}  // namespace lockstep
