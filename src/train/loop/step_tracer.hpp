// SPDX-License-Identifier: Apache-2.0
// The trace of this rank over the steps of --trace.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// Listens to the clock during such steps, and takes collectives from the flight record, which
/// exists anyway: other steps cost one comparison. A step lasts from the end of the previous one to
/// its own, as in rank-NNNNN.steps.
class StepTracer {
  public:
    /// Traces a loop that is about to begin. `parts` outlives this.
    explicit StepTracer(const LoopParts& parts);

    /// Writes the trace so far, if the loop ends amid the requested steps.
    ~StepTracer();
    StepTracer(const StepTracer&) = delete;
    StepTracer& operator=(const StepTracer&) = delete;

    /// Call after each step. After the last requested step it writes the trace.
    void after_step();

  private:
    /// The same moment on two clocks.
    struct Moment {
        double s = 0;              ///< seconds of now_s()
        std::int64_t unix_ns = 0;  ///< nanoseconds since 1970
    };

    bool is_wanted(std::int64_t step) const;
    std::int64_t unix_ns(double s) const;
    void begin(double since_s);
    void enter(const PhaseMark& begun);
    void close_phase(double now);
    void close_step(double now);
    void take_collectives();
    TraceSlice slice_of(const FlightEntry& entry) const;
    void add(TraceSlice slice);
    void write();

    const LoopParts& parts_;
    std::optional<PhaseListener> listener_;  ///< set while steps are traced
    StepTrace trace_;
    Moment began_;
    PhaseMark phase_;  ///< current phase
    std::int64_t step_ = 0;
    double step_since_s_ = 0;                   ///< begin of the current step
    FlightRecorder::Ticket next_;               ///< the first collective not yet examined
    std::vector<FlightRecorder::Ticket> open_;  ///< those without an end when they were examined
};

}  // namespace lockstep
