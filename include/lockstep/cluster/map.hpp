// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans of whole jobs: ranks over hosts, written as tables, launch lines and files.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A host and how many ranks it takes.
struct HostSlots {
    std::string host;
    int slots = 1;
    bool operator==(const HostSlots&) const = default;
};

/// "r1:4,r2:2", as mpirun's --host has it; a name alone is one slot, a name again adds to it.
/// Errors: E607.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// See lay_out().
enum class MapBy { slot, node };

/// The host of a rank: mpirun's and srun's rule.
struct RankOnHost {
    int rank = 0;
    int host = 0;  ///< index into the hosts
    int local_rank = 0;
    bool operator==(const RankOnHost&) const = default;
};

/// By slot: the first host is filled first (mpirun's default, srun --distribution=block); by node:
/// one rank to each in turn (--map-by node, cyclic). `ranks` 0: one for each slot.
/// Errors: E607 more ranks than slots.
std::vector<RankOnHost> lay_out(std::span<const HostSlots> hosts, int ranks, MapBy by);

/// A plan for hosts that are all like `node`; without one, only names and numbers. GPUs have UUIDs
/// only on the host that `node` describes. Errors: those of lay_out and place_on_node.
Placement plan_job(std::span<const HostSlots> hosts,
                   std::span<const RankOnHost> ranks,
                   const NodeTopology* node,
                   const PlacementRules& rules);

/// How `reality` differs from `plan`, one line each; empty when it does not. Cores differ where a
/// rank may run on one that the plan does not give it.
std::vector<std::string> differences(const Placement& plan, std::span<const RankSeat> reality);

/// Errors: E644 with the first of them.
void check_against_plan(const Placement& plan, std::span<const RankSeat> reality);

/// A headed, aligned table, every line ended; then the warnings.
std::string placement_table(const Placement& placement);

/// mpirun's --rankfile: CPUs as the kernel numbers them, for mpirun --mca
/// rmaps_rank_file_physical 1. Errors: E645 if no topology tells cores.
std::string rankfile_text(const Placement& placement);

/// The command line that starts this plan; if mpirun cannot express it, the way with a
/// rankfile. srun: E645 if nodes differ. sbatch: a whole script.
std::string mpirun_text(const Placement& placement, const NodeTopology* node);

/// As mpirun_text(), for srun.
std::string srun_text(const Placement& placement);

/// As mpirun_text(), for sbatch.
std::string sbatch_text(const Placement& placement);

}  // namespace lockstep
