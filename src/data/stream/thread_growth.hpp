// SPDX-License-Identifier: Apache-2.0
// Chooses the number of a stream's I/O threads: the smallest for which its caller does not wait.
#pragma once

#include "lockstep/data/batch_stream.hpp"

namespace lockstep {

/// Checks a stream's totals from time to time. If the caller waited for more than 1 % of the time
/// since the last check and the I/O threads were busy, one more is tried; if they were not busy,
/// another stage is slow. A value without threads or clocks.
class ThreadGrowth {
  public:
    /// Time between two checks, long enough to measure a share of 1 %.
    static constexpr double interval_s = 0.2;

    explicit ThreadGrowth(int most) : most_(most) {}

    bool is_due(double now) const { return now >= next_look_s_; }

    enum class Advice {
        none,  ///< the first check only begins: a stream that starts is always waited for
        keep,
        add
    };
    /// `total.io_threads` are in use at `now`.
    Advice look(double now, const StreamStats& total);

    /// Returns the share of the time that the caller waited between the last two checks.
    double waited_share() const { return waited_share_; }

  private:
    int most_;
    double next_look_s_ = 0, last_look_s_ = 0, waited_share_ = 0;
    bool has_begun_ = false;
    StreamStats last_;
};

}  // namespace lockstep
