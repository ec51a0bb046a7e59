// SPDX-License-Identifier: Apache-2.0
// How many I/O threads a stream should have: as few as its caller does not wait for.
#pragma once

#include "lockstep/data/batch_stream.hpp"

namespace lockstep {

/// Looks at a stream's totals now and then. Where the caller waited for more than 1 % of the time
/// since the last look and the I/O threads were busy, one more is worth trying; where they were
/// not, something else is slow. A value; knows nothing of threads or clocks.
class ThreadGrowth {
  public:
    /// Between two looks. Long enough for a share of 1 % to mean something.
    static constexpr double interval_s = 0.2;

    explicit ThreadGrowth(int most) : most_(most) {}

    bool is_due(double now) const { return now >= next_look_s_; }

    enum class Advice {
        none,  ///< the first look only begins: a stream that starts is always waited for
        keep,
        add
    };
    /// `total.io_threads` are in use at `now`.
    Advice look(double now, const StreamStats& total);

    /// The share of the time that the caller waited between the last two looks.
    double waited_share() const { return waited_share_; }

  private:
    int most_;
    double next_look_s_ = 0, last_look_s_ = 0, waited_share_ = 0;
    bool has_begun_ = false;
    StreamStats last_;
};

}  // namespace lockstep
