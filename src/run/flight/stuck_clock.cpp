// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/watchdog.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

double StuckClock::update(const std::optional<FlightEntry>& pending, double now_s) {
    constexpr double most_periods = 4;  // longer between two calls: this process was stopped itself
    const double before_s = std::exchange(last_s_, now_s);
    if (!pending) return waited_s_ = 0;
    const bool is_same = pending->channel == channel_ && pending->seq == seq_;
    if (!is_same) waited_s_ = 0;
    channel_ = pending->channel;
    seq_ = pending->seq;
    const double passed_s = now_s - std::max(before_s, pending->enqueued_s);
    waited_s_ += std::clamp(passed_s, 0.0, most_periods * period_s_);
    return waited_s_;
}

}  // namespace lockstep
