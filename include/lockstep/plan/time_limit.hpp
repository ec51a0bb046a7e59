// SPDX-License-Identifier: Apache-2.0
/// @file
/// When a run has to stop, so that it is saved before its job's time is over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// The rule: two of the longest recent turns of the loop, two of the longest saves, and a margin
/// of 90 s, at most a tenth of what was left at the start, still fit. Times are those of now_s():
/// a wall clock that is set cannot move the limit.
class TimeLimit {
  public:
    /// `deadline_unix_s` 0: no limit. `unix_now_s` and `now_s` are the same moment.
    TimeLimit(std::int64_t deadline_unix_s, double unix_now_s, double now_s);

    /// To be called at the begin of every turn.
    void begin_turn(double now_s);

    /// A checkpoint took so long.
    void note_save(double seconds);

    /// Whether another turn might be one too many.
    bool is_near(double now_s) const;

  private:
    double deadline_s_;
    double margin_s_;
    std::array<double, 64> turns_s_{};
    std::size_t turns_ = 0;
    double turn_began_s_ = 0;
    double longest_save_s_ = 0;
};

}  // namespace lockstep
