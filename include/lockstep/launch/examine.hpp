// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gathers what the doctor's checks look at, over all ranks.
#pragma once

#include "lockstep/cluster/doctor.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <vector>

namespace lockstep {

/// Collective. What this rank knows by itself and from MPI, within a fraction of a second. Errors:
/// those of read_topology, on all ranks.
DoctorFacts examine_rank(const Communicator& ranks, const RankFacts& facts, const DoctorPlan& plan);

/// Collective. Adds what else happens on this rank's CPUs, in a quarter of a second.
void examine_load(const Communicator& ranks, DoctorFacts& mine);

/// Collective. Adds what only probes can tell: load, clocks, reachable addresses, links, sums,
/// steps, errors counted meanwhile. Takes seconds.
void examine_slowly(const Communicator& ranks, DoctorFacts& mine);

/// Collective. Everyone's facts, by rank, on rank 0, which judges; nothing on the others.
std::vector<DoctorFacts> gather_facts(const Communicator& ranks, const DoctorFacts& mine);

}  // namespace lockstep
