// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of the ranks of this job: read on every rank, with the same result on all; and how
/// each rank takes its cores and GPU, before anything in it has threads.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/examine.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The job's ranks, in order.
struct LivePlacement {
    Placement plan;                 ///< the place of each rank
    std::vector<RankSeat> reality;  ///< with the cores that each may use now
    NodeTopology node;              ///< this rank's node, with everything that its ranks see
};

/// Collective. Reads the placement. Errors: E604, E646 (launcher, MPI and system disagree),
/// E608, E609, E643, E648; on all ranks.
LivePlacement place_live(const Communicator& ranks,
                         const RankFacts& facts,
                         const PlacementRules& rules);

/// Collective. Checks that the job runs as the plan in `path` says (map --format json). Errors:
/// E644 on all ranks if it does not; those of place_live, but ranks that share cores or GPUs are
/// not an error.
void check_plan(const Communicator& ranks,
                const RankFacts& facts,
                const std::filesystem::path& path);

/// Binds this process as early_binding() says. Returns the variables that the program it becomes
/// needs in its environment; empty if nothing is bound. Call before MPI starts.
std::map<std::string, std::string> bind_rank(const RankFacts& facts);

/// Returns the variables that keep this process's cores in the program that it becomes. For a
/// process that starts no other ranks and becomes a program with OpenMP. Empty if no variable makes
/// OpenMP bind its first thread.
std::map<std::string, std::string> kept_cores();

/// Gives this thread the rank's cores back, in the program that a bound rank became. OpenMP kept it
/// for its first core, and threads that it makes (readers, communication) would all be there.
void release_first_thread();

/// Returns the reason why nothing is bound, if a setting of the user forbids it; else "".
std::string binding_note(const RankFacts& facts);

/// Collective. Ranks that compute on GPUs select theirs by PCI address, ask CUDA which one it
/// selected, and compare with each other; failures become facts for check G1. Instances (MIG) are
/// left out: they must be named before the driver starts, and it has started already.
void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine);

}  // namespace lockstep
