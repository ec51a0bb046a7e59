// SPDX-License-Identifier: Apache-2.0
// The starts of a run, from the logs of rank 0.
#pragma once

#include "lockstep/run/run_status.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// Returns the starts 1 to `incarnation`, without those that have no log. A damaged line is
/// skipped. `saved_step`: later steps do not count; negative: all steps of the newest start count.
/// `clock`: that of start `incarnation`, by which all times are given; rank 0 of an earlier start
/// may have run on another host.
std::vector<StartRecord> read_starts(const fs::path& root,
                                     std::int64_t incarnation,
                                     std::int64_t saved_step,
                                     const RunClock& clock = {});

/// Returns the sums over `starts`, the last of which was at work until `end_unix_s`.
RunTimes run_times(std::span<const StartRecord> starts, double end_unix_s);

}  // namespace lockstep
