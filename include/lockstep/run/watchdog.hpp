// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ends a rank that waits too long, and says whom it waited for.
#pragma once

#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/rank_trace.hpp"
#include "lockstep/run/verdict.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A rank and its process.
struct RankPlace {
    int rank = 0;  ///< of the job
    ProcessIdentity process;
};

/// The ranks of a node.
struct NodeRanks {
    std::string host;                         ///< its name
    std::vector<RankPlace> ranks;             ///< by rank
    std::vector<std::string> addresses = {};  ///< of its network, without loopback
};

/// Which processes of a job are on which node: nodes in order of their lowest ranks.
struct NodeMap {
    int rank = 0;                  ///< of this process
    std::size_t own = 0;           ///< its node
    std::vector<NodeRanks> nodes;  ///< in that order
};

/// What a rank of node `node`, which is named by its lowest rank, tells the others about its place.
std::string own_place(int node);

/// What all ranks told, in their order, as rank `rank` of node `node` sees it.
NodeMap node_map(const std::vector<std::string>& places, int rank, int node);

/// Whether the node can write its beat into `folder`. For its first rank.
bool can_beat(const NodeMap& map, const fs::path& folder);

/// How often nodes beat, and when one that does not is given up.
struct NodeWatchSettings {
    double beat_s = 3;     ///< from one beat to the next
    double silent_s = 18;  ///< a node that others wait for may be silent so long; 0: for ever
    /// What is sent to a node that others wait for may be unanswered so long. TCP sends again after
    /// 25 s, and after 51 s; some seconds are for the next beat, and to say so.
    double unanswered_s = 53;
    /// By address, for how long it has not answered; without: the kernel is asked.
    std::function<std::map<std::string, double>()> unanswered = {};
};

/// A thread that calls no MPI: its node beats, in a small file that other nodes read, and it reads
/// theirs. Until stand_by() a loss ends this process with 76, one rank of all telling whom and
/// where; afterwards it is the Watchdog's to do so. src/run/flight/node_watch.cpp says why files.
class NodeWatch {
  public:
    /// Beats in `folder`, which `map`'s nodes share.
    NodeWatch(NodeMap map, fs::path folder, NodeWatchSettings settings);
    ~NodeWatch();
    NodeWatch(const NodeWatch&) = delete;
    NodeWatch& operator=(const NodeWatch&) = delete;

    /// Goes on in the folder of `recorder`, whose owner asks lost() from now on. `recorder`
    /// outlives this.
    void stand_by(const FlightRecorder& recorder);

    /// Ranks of other nodes that are gone, silent or do not answer, as far as this one watches
    /// them: host, pid, life and last heartbeat.
    std::vector<RankTrace> lost() const;

    /// Where the nodes beat now.
    fs::path folder() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// How long a collective may last, from when this rank announced it; four times as long while it
/// saves or evaluates, and during set-up.
struct WatchdogSettings {
    double warn_s = 60;    ///< after so long: Stage::warn
    double dump_s = 120;   ///< after so long: Stage::dump
    double abort_s = 600;  ///< after so long: Stage::abort; 0 or less: never
    double init_s = 2400;  ///< the same as abort_s, until FlightRecorder::mark_running()
    bool is_patient() const { return abort_s <= 0; }  ///< waits for ever

    /// Warns at 1/10 and dumps at 1/5 of `abort_s`; four times as long for setting up.
    static WatchdogSettings within(double abort_s);
};

/// How far a wait has gone.
enum class Stage { none, warn, dump, abort };

/// The watchdog's messages to its owner, from its own thread, while others may hang.
struct WatchReport {
    Stage stage = Stage::none;  ///< that the wait has come to
    bool speaks = false;        ///< this rank reports to the user
    Verdict verdict;            ///< who keeps the others waiting
};

/// Adds up how long one collective has been pending. Time in which this process itself was not
/// running does not count.
class StuckClock {
  public:
    /// `period_s`: how often update() will be called.
    explicit StuckClock(double period_s) : period_s_(period_s) {}

    /// To be called every `period_s` or so, with what pending() gives; returns the seconds.
    double update(const std::optional<FlightEntry>& pending, double now_s);
    void reset() { waited_s_ = 0; }  ///< begins again at 0

  private:
    double period_s_, waited_s_ = 0, last_s_ = 0;
    std::uint32_t channel_ = 0;
    std::uint64_t seq_ = 0;
};

/// Two threads that call no MPI and take no lock that the watched threads take. One counts and
/// beats; the other reads files: other ranks' rings, from the recorder's folder, and /proc. A rank
/// of this node that is gone without a word ends this one at once; otherwise the stages do, of a
/// collective that is pending, of a phase of computing (is_computing()) that does not end, and of a
/// set-up that comes to no further collective. Once stop_requests() is 1 such a phase has a minute,
/// and once it is 2, a second. In the end one rank alone writes the verdict to stderr and
/// verdict.json, `listener` is called, and the process exits with 76, at most 1.5 s after its time,
/// whatever else hangs.
class Watchdog {
  public:
    /// Called on the watchdog's thread. It may hang: the process ends all the same.
    using Listener = std::function<void(const WatchReport&)>;

    /// `recorder` and `nodes`, if there is one, outlive this. A rank that `nodes` has lost ends
    /// this one as a rank of this node does that is gone.
    Watchdog(FlightRecorder& recorder,
             WatchdogSettings settings,
             Listener listener,
             const NodeWatch* nodes = nullptr);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
