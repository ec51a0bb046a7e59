// SPDX-License-Identifier: Apache-2.0
// Measures a step's phases on a GPU; the host cannot, because it runs ahead.
#pragma once

#include "lockstep/core/clock.hpp"

#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace lockstep {

/// Follows a clock: when a phase begins on the host, an event is put into the stream that computes.
/// Does nothing on a CPU.
class DevicePhases {
  public:
    /// `clock` outlives this.
    DevicePhases(PhaseClock& clock, c10::Device device) : clock_(clock), device_(device) {}

    void begin_step();

    /// Waits until the stream has done the step, and sets the clock's phases to the times there.
    /// Time before the stream began, because its samples had not arrived, is Phase::copy.
    void end_step();

  private:
    struct Mark {
        Phase phase;
        c10::Event event;
    };

    void mark(Phase phase);

    PhaseClock& clock_;
    c10::Device device_;
    std::optional<PhaseListener> listener_;  ///< set during a step
    PhaseSeconds before_{};
    std::vector<Mark> marks_;
    std::size_t used_ = 0;  ///< used ones of marks_, whose events are reused
};

}  // namespace lockstep
