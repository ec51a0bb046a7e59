// SPDX-License-Identifier: Apache-2.0
// Measures seconds of waiting.
#pragma once

#include "lockstep/core/clock.hpp"

#include <utility>

namespace lockstep {

/// Adds up the lengths of scopes.
class WaitClock {
  public:
    /// Runs `wait` and adds its duration.
    template <class Work>
    void count(Work&& wait) {
        const double begin = now_s();
        wait();
        seconds_ += now_s() - begin;
    }
    double take() { return std::exchange(seconds_, 0.0); }

  private:
    double seconds_ = 0;
};

}  // namespace lockstep
