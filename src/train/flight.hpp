// SPDX-License-Identifier: Apache-2.0
// A training rank's flight recorder and watchdog, and what they say about the run.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/flight_recorder.hpp"
#include "lockstep/comm/watchdog.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/observe/run_directory.hpp"
#include "lockstep/train/settings.hpp"

#include <cstdint>

namespace lockstep {

/// Records and watches from construction to destruction: phases of `clock`, signals, collectives
/// that go through recorded(). At its time-out, the rank that speaks for all also marks the run as
/// failed.
class Flight {
  public:
    Flight(const RunPaths& paths,
           std::int64_t incarnation,
           const Communicator& ranks,
           const TrainSettings& settings,
           PhaseClock& clock);
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    FlightRecorder& recorder() { return recorder_; }

  private:
    PhaseClock& clock_;
    FlightRecorder recorder_;
    Watchdog watchdog_;
};

}  // namespace lockstep
