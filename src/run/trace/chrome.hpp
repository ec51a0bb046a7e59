// SPDX-License-Identifier: Apache-2.0
// Slices as events of Chrome's JSON format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include "lockstep/run/trace.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Returns the events of one rank, one per line with a comma at its end: names of process and
/// lanes, and slices. As in Kineto's files, the process is the rank's own.
std::string chrome_events(const StepTrace& trace);

/// Returns the same for a file of all ranks, with `ahead_ns` subtracted from the times: a rank is a
/// process, and arrows lead from each collective to the same one on the next rank.
std::string merged_events(const StepTrace& trace, std::int64_t ahead_ns);

}  // namespace lockstep
