// SPDX-License-Identifier: Apache-2.0
/// @file
/// Notices ranks of other nodes that are dead or silent, from the start of a job on.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/rank_trace.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct NodeMap;  // flight/node_map.hpp

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

/// Collective. A watch over the nodes of `ranks` in the folder that `make_folder` makes on rank 0;
/// nothing where there is one node only, where it gives "", or where a node cannot write there.
std::unique_ptr<NodeWatch> watch_nodes(const Communicator& ranks,
                                       const std::function<fs::path()>& make_folder,
                                       NodeWatchSettings settings);

}  // namespace lockstep
