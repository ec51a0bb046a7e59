// SPDX-License-Identifier: Apache-2.0
/// @file
/// The doctor over all ranks: gathers facts for its checks, and runs the fast checks before a job.
#pragma once

#include "lockstep/cluster/doctor.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

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

/// Applies `findings` to a job that is about to start: logs warnings. Errors: E613.
void judge_preflight(std::span<const DoctorFinding> findings);

}  // namespace lockstep
