// SPDX-License-Identifier: Apache-2.0
// What the logs of rank 0 tell about the starts of a run.
#pragma once

#include "lockstep/run/run_status.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// The starts 1 to `incarnation`, those without a log left out. A damaged line is passed over.
/// `saved_step`: steps beyond it count for nothing; negative: all of the newest start's count.
/// `clock`: of start `incarnation`, on which all times are told: rank 0 of an earlier one may have
/// had another host's.
std::vector<StartRecord> read_starts(const fs::path& root,
                                     std::int64_t incarnation,
                                     std::int64_t saved_step,
                                     const RunClock& clock = {});

/// Sums over `starts`, the last of which was at work until `end_unix_s`.
RunTimes run_times(std::span<const StartRecord> starts, double end_unix_s);

}  // namespace lockstep
