// SPDX-License-Identifier: Apache-2.0
// What a GPU does with the time of a step: the host, which is ahead of it, cannot tell.
#pragma once

#include "lockstep/core/clock.hpp"

#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace lockstep {

/// Follows a clock: where a phase begins on the host, an event is put into the stream that
/// computes. On a CPU it does nothing.
class DevicePhases {
  public:
    /// `clock` outlives this.
    DevicePhases(PhaseClock& clock, c10::Device device) : clock_(clock), device_(device) {}

    void begin_step();

    /// When the stream has done the step: its phases are on the clock what they took there. What
    /// passed before the stream began, because its samples were not there yet, is Phase::copy.
    void end_step();

  private:
    struct Mark {
        Phase phase;
        c10::Event event;
    };

    void mark(Phase phase);

    PhaseClock& clock_;
    c10::Device device_;
    std::optional<PhaseListener> listener_;  ///< during a step
    PhaseSeconds before_{};
    std::vector<Mark> marks_;
    std::size_t used_ = 0;  ///< of marks_, whose events are used again
};

}  // namespace lockstep
