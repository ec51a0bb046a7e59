// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts of this process about its launch and its node, read once and without communication; and
/// the doctor over all ranks: gathers facts for its checks, and runs the fast checks before a job.
#pragma once

#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/comm/communicator.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Each part is read on first use and then cached: all code that places, checks or binds this rank
/// uses the same facts. Make it after the first thread has the cores that it is to keep. One
/// thread.
class RankFacts {
  public:
    /// Reads the node.
    using Reader = std::function<NodeTopology()>;

    /// Reads the node with its GPU drivers.
    RankFacts();

    /// `read` is called at most once.
    explicit RankFacts(Reader read) : read_(std::move(read)) {}

    /// Returns the launch. Errors: those of read_launch_facts().
    const LaunchFacts& launch() const;

    /// Returns the node. Errors: those of the reader.
    const NodeTopology& node() const;

  private:
    Reader read_;
    mutable std::optional<LaunchFacts> launch_;
    mutable std::optional<NodeTopology> node_;
};

/// Collective. Returns the facts that this rank has by itself and from MPI, within a fraction of a
/// second. Errors: those of read_topology, on all ranks.
DoctorFacts examine_rank(const Communicator& ranks, const RankFacts& facts, const DoctorPlan& plan);

/// Collective. Adds the load of other processes on this rank's CPUs, in a quarter of a second.
void examine_load(const Communicator& ranks, DoctorFacts& mine);

/// Collective. Adds facts that need probes: load, clocks, reachable addresses, links, sums, steps,
/// and errors counted in that time. Takes seconds.
void examine_slowly(const Communicator& ranks, DoctorFacts& mine);

/// Collective. Returns the facts of all ranks, by rank, on rank 0, which judges them; nothing on
/// the others.
std::vector<DoctorFacts> gather_facts(const Communicator& ranks, const DoctorFacts& mine);

/// Collective. Runs the fast checks over all ranks, in less than 2 s at 8 ranks of one node.
/// Warnings are logged once. Errors: E613 on all ranks, with the first error's cause and remedy and
/// the number of others. `skip`: ids or families of checks that the caller has made already.
void run_preflight(const Communicator& ranks,
                   const RankFacts& facts,
                   const DoctorPlan& plan,
                   const std::vector<std::string>& skip = {});

}  // namespace lockstep
