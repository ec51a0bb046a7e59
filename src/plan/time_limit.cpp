// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {

TimeLimit::TimeLimit(std::int64_t deadline_unix_s, double unix_now_s, double now_s)
    : deadline_s_(std::numeric_limits<double>::infinity()), margin_s_(0) {
    if (deadline_unix_s <= 0) return;
    const double left_s = std::max(static_cast<double>(deadline_unix_s) - unix_now_s, 0.0);
    deadline_s_ = now_s + left_s;
    margin_s_ = std::min(90.0, left_s / 10);
}

void TimeLimit::begin_turn(double now_s) {
    if (turn_began_s_ > 0) turns_s_[turns_++ % turns_s_.size()] = now_s - turn_began_s_;
    turn_began_s_ = now_s;
}

void TimeLimit::note_save(double seconds) {
    longest_save_s_ = std::max(longest_save_s_, seconds);
}

bool TimeLimit::is_near(double now_s) const {
    const double turn_s = *std::ranges::max_element(turns_s_);
    return now_s + 2 * turn_s + 2 * longest_save_s_ + margin_s_ >= deadline_s_;
}

}  // namespace lockstep
