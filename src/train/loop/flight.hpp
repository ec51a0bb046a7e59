// SPDX-License-Identifier: Apache-2.0
// A training rank's flight recorder and watchdog, and what they say about the run.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/flight_recorder.hpp"
#include "lockstep/comm/node_watch.hpp"
#include "lockstep/comm/watchdog.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/observe/run_directory.hpp"
#include "lockstep/train/settings.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {

/// Watches over the nodes before the run's folder is opened, in a folder in it that is gone when
/// this is. Does nothing on one node.
class EarlyNodeWatch {
  public:
    /// Collective.
    EarlyNodeWatch(const Communicator& ranks, const TrainSettings& settings);
    ~EarlyNodeWatch();
    EarlyNodeWatch(const EarlyNodeWatch&) = delete;
    EarlyNodeWatch& operator=(const EarlyNodeWatch&) = delete;

    std::unique_ptr<NodeWatch> take() { return std::move(nodes_); }

  private:
    fs::path make_folder(const fs::path& run);

    fs::path run_, folder_;  // rank 0: what it made; "": nothing
    std::unique_ptr<NodeWatch> nodes_;
};

/// Records and watches from construction to destruction: phases of `clock`, signals, collectives
/// that go through recorded(), and those of `ranks` that save or evaluate. At its time-out, the
/// rank that speaks for all also marks the run as failed.
class Flight {
  public:
    Flight(const RunPaths& paths,
           std::int64_t incarnation,
           const Communicator& ranks,
           const TrainSettings& settings,
           PhaseClock& clock,
           std::unique_ptr<NodeWatch> nodes);
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    FlightRecorder& recorder() { return recorder_; }

  private:
    PhaseClock& clock_;
    const Communicator ranks_;
    FlightRecorder recorder_;
    std::unique_ptr<NodeWatch> nodes_;  // none on one node
    Watchdog watchdog_;
};

}  // namespace lockstep
