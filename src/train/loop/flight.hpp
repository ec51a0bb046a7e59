// SPDX-License-Identifier: Apache-2.0
// A training rank's flight recorder and watchdog, and their effects on the run.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/watchdog.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace lockstep {

/// Records and watches before the run's folder is opened, in a temporary folder inside it. So a
/// rank that stops, or a model's constructor that loops, ends a start in the same way as a
/// training. Does nothing if that folder cannot be made, or if not all ranks see it.
class EarlyFlight {
  public:
    /// Collective.
    EarlyFlight(const Communicator& ranks, const TrainSettings& settings);
    ~EarlyFlight();
    EarlyFlight(const EarlyFlight&) = delete;
    EarlyFlight& operator=(const EarlyFlight&) = delete;

    /// Call when the run is open: from now on a verdict marks this start as failed.
    void name_start(std::int64_t incarnation) { incarnation_ = incarnation; }

    std::shared_ptr<NodeWatch> nodes() const { return nodes_; }  ///< null on one node

    /// Collective. Call when all ranks have a Flight that watches them.
    void hand_over();

  private:
    fs::path make_folder(const fs::path& run);
    bool begin_record(const fs::path& folder, const TrainSettings& settings);
    void end_record();
    void watch(const TrainSettings& settings);

    const Communicator ranks_;
    fs::path run_, folder_;  // folder that rank 0 made; "": none
    std::atomic<std::int64_t> incarnation_ = 0;
    std::optional<FlightRecorder> recorder_;
    std::shared_ptr<NodeWatch> nodes_;
    std::optional<Watchdog> watchdog_;
};

/// Records and watches from construction to destruction: phases of `clock`, signals, collectives
/// that go through recorded(), and those of `ranks` that save or evaluate. At its time-out, the
/// rank that reports for all also marks the run as failed.
class Flight {
  public:
    Flight(const RunPaths& paths,
           std::int64_t incarnation,
           const Communicator& ranks,
           const TrainSettings& settings,
           PhaseClock& clock,
           std::shared_ptr<NodeWatch> nodes);
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    FlightRecorder& recorder() { return recorder_; }

  private:
    PhaseClock& clock_;
    const Communicator ranks_;
    FlightRecorder recorder_;
    std::shared_ptr<NodeWatch> nodes_;  // null on one node
    Watchdog watchdog_;
};

}  // namespace lockstep
