// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ends a rank that waits too long, and reports the rank that it waited for.
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
    int rank = 0;  ///< its rank in the job
    ProcessIdentity process;
};

/// The ranks of a node.
struct NodeRanks {
    std::string host;                         ///< name of the node
    std::vector<RankPlace> ranks;             ///< by rank
    std::vector<std::string> addresses = {};  ///< addresses of its network, without loopback
};

/// The processes of a job by node; nodes are in the order of their lowest ranks.
struct NodeMap {
    int rank = 0;                  ///< rank of this process
    std::size_t own = 0;           ///< index of its node
    std::vector<NodeRanks> nodes;  ///< in that order
};

/// Returns the text in which a rank tells others its place on node `node`, which is identified by
/// its lowest rank.
std::string own_place(int node);

/// Makes the map from the texts of all ranks, in order, as rank `rank` of node `node` sees it.
NodeMap node_map(const std::vector<std::string>& places, int rank, int node);

/// Returns true if the node can write its heartbeat into `folder`. For its first rank.
bool can_beat(const NodeMap& map, const fs::path& folder);

/// The interval of nodes' heartbeats, and the limits after which a silent node counts as lost.
struct NodeWatchSettings {
    double beat_s = 3;     ///< interval of heartbeats
    double silent_s = 18;  ///< most silence of a node that others wait for; 0: no limit
    /// Longest time for which messages to a node that others wait for may be unanswered. TCP sends
    /// again after 25 s, and after 51 s; the rest is for the next heartbeat, and to report.
    double unanswered_s = 53;
    /// Returns for each address how long it has not answered; without it, the kernel is asked.
    std::function<std::map<std::string, double>()> unanswered = {};
};

/// A thread that calls no MPI. It writes its node's heartbeat into a small file, and reads those of
/// other nodes. Until stand_by() a loss ends this process with 76, and one rank reports which ranks
/// and nodes are lost; afterwards the Watchdog does so. src/run/flight/node_watch.cpp explains the
/// use of files.
class NodeWatch {
  public:
    /// Writes heartbeats in `folder`, which `map`'s nodes share.
    NodeWatch(NodeMap map, fs::path folder, NodeWatchSettings settings);
    ~NodeWatch();
    NodeWatch& operator=(NodeWatch&&) = delete;

    /// Continues in the folder of `recorder`, whose owner asks lost() from now on. `recorder` must
    /// outlive this.
    void stand_by(const FlightRecorder& recorder);

    /// Returns the ranks of watched nodes that are gone, silent or do not answer: host, pid, life
    /// and last heartbeat.
    std::vector<RankTrace> lost() const;

    /// Returns true if this process is the first that gives a verdict, in the folder of the set-up,
    /// if it is there still, and in the present one. While ranks change from one to the other, some
    /// look into either.
    bool claim(const Verdict& verdict) const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// Time limits of a collective, from this rank's announcement of it. They are four times as long
/// while it saves or evaluates, and during set-up.
struct WatchdogSettings {
    double warn_s = 60;    ///< limit of Stage::warn
    double dump_s = 120;   ///< limit of Stage::dump
    double abort_s = 600;  ///< limit of Stage::abort; 0 or less: no limit
    double init_s = 2400;  ///< abort_s until FlightRecorder::mark_running()
    bool is_patient() const { return abort_s <= 0; }  ///< no limit

    /// Returns limits that warn at 1/10 and dump at 1/5 of `abort_s`; four times as long for
    /// set-up.
    static WatchdogSettings within(double abort_s);
};

/// The stage of a wait.
enum class Stage { none, warn, dump, abort };

/// A report of the watchdog to its owner, from its own thread, while others may hang.
struct WatchReport {
    Stage stage = Stage::none;  ///< stage that the wait has reached
    bool speaks = false;        ///< this rank reports to the user
    Verdict verdict;            ///< the rank that others wait for
};

/// Measures for how long one collective has been pending. Time in which this process itself was not
/// running does not count.
class StuckClock {
  public:
    /// `period_s`: the interval at which update() is called.
    explicit StuckClock(double period_s) : period_s_(period_s) {}

    /// Call it about every `period_s` with the result of pending(). Returns the seconds.
    double update(const std::optional<FlightEntry>& pending, double now_s);
    void reset() { waited_s_ = 0; }  ///< restarts at 0

  private:
    double period_s_, waited_s_ = 0, last_s_ = 0;
    std::uint32_t channel_ = 0;
    std::uint64_t seq_ = 0;
};

/// Two threads that call no MPI and take no lock of the watched threads. One counts and writes
/// heartbeats; the other reads files: other ranks' rings, from the recorder's folder, and /proc. If
/// a rank of this node is gone without an error, this rank ends at once. Otherwise the stages apply
/// to a pending collective, to a phase of computing (is_computing()) that does not end, and to a
/// set-up that reaches no further collective. Once stop_requests() is 1 such a phase has a minute,
/// and once it is 2, a second. A save (Phase::checkpoint) that does not mark its phase anew has
/// four times as long, and once as long after stop_requests(). Finally a single rank writes the
/// verdict to stderr and verdict.json, `listener` is called, and the process exits with 76. That
/// takes at most 1.5 s, even if everything else hangs.
class Watchdog {
  public:
    /// Called on the watchdog's thread. If it hangs, the process still ends.
    using Listener = std::function<void(const WatchReport&)>;

    /// `recorder` and `nodes`, if given, must outlive this. A rank that `nodes` has lost ends this
    /// one in the same way as a rank of this node that is gone.
    Watchdog(FlightRecorder& recorder,
             WatchdogSettings settings,
             Listener listener,
             const NodeWatch* nodes = nullptr);
    ~Watchdog();
    Watchdog& operator=(Watchdog&&) = delete;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
