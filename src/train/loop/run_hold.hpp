// SPDX-License-Identifier: Apache-2.0
// What a rank holds of the run on disk: its directory, its log and the record of its flight.
#pragma once

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/watchdog.hpp"

#include "loop/inputs.hpp"
#include "loop/run_contract.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace lockstep {

struct LoopParts;

/// Records and watches before the run's folder is opened, in a folder in it that is gone when this
/// is: a rank that stops, or a model's constructor that loops, ends a start as it ends a training.
/// Does nothing where that folder cannot be made, or cannot be seen by all ranks.
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

/// What this rank has of its node.
struct RankShare {
    CpuShare cpus;
    double cores = 0;                ///< see core_share()
    std::uint64_t memory_bytes = 0;  ///< of its node's
    int ranks_here = 1;              ///< number of ranks on its node
};

/// Rank 0 holds the directory, the others know its paths.
struct RunHold {
    /// Collective. From here on a rank that hangs or dies is named.
    explicit RunHold(const Start& start) { early.emplace(start.ranks, start.settings); }

    std::optional<RunDirectory> directory;  ///< rank 0 only
    RunPaths paths;
    std::int64_t incarnation = 1;
    PhaseClock clock;
    RankShare share;                 ///< after introduce()
    std::unique_ptr<Flight> flight;  ///< likewise; outlives the replica, whose exchange it records
    std::optional<EarlyFlight> early;  ///< until `flight` watches
};

/// Collective. Looks at the data's files, and takes the run directory. Errors leave no half-made
/// run behind: E306, those of check_recorded() and of RunDirectory.
void take_run(RunHold& run, Start& start, Inputs& inputs, Contract& contract);

/// Collective. Opens the log, shows the rank table and what the run is about, and watches.
void introduce(const LoopParts& parts);

/// Collective, after the first step, when all ranks that exchange anything have met.
void tell_of_network(const LoopParts& parts);

/// Returns `state` with the lengths of the run.
RunState with_lengths(const LoopParts& parts, RunState state);

/// Rank 0 writes state.json. No save is in flight.
void write_state(const LoopParts& parts, RunState state);

/// For who reads the run afterwards: this rank ends with `error`, alone or with all others.
void note_failure(const LoopParts& parts, const Error& error);

}  // namespace lockstep
