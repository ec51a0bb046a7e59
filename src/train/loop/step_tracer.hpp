// SPDX-License-Identifier: Apache-2.0
// With --trace: what this rank does in the steps asked for, moment by moment.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// Listens to the clock while such steps last, and takes collectives from the flight record, where
/// they are noted anyway: other steps cost a comparison. A step is from the end of the one before
/// to its own, as in rank-NNNNN.steps.
class StepTracer {
  public:
    /// Of a loop that is about to begin. `parts` outlives this.
    explicit StepTracer(const LoopParts& parts);

    /// Writes what there is, where the loop ends amid the steps asked for.
    ~StepTracer();
    StepTracer(const StepTracer&) = delete;
    StepTracer& operator=(const StepTracer&) = delete;

    /// After each step. After the last one that was asked for it writes the trace.
    void after_step();

  private:
    /// Where the clocks stood at the same moment.
    struct Moment {
        double s = 0;              ///< of now_s()
        std::int64_t unix_ns = 0;  ///< since 1970
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
    std::optional<PhaseListener> listener_;  ///< while steps are traced
    StepTrace trace_;
    Moment began_;
    PhaseMark phase_;  ///< that is going on
    std::int64_t step_ = 0;
    double step_since_s_ = 0;                   ///< when that began
    FlightRecorder::Ticket next_;               ///< the first collective that was not looked at
    std::vector<FlightRecorder::Ticket> open_;  ///< those without an end when they were
};

}  // namespace lockstep
