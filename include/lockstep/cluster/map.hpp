// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans of whole jobs: ranks over hosts, as tables, launch lines and files.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A host and its number of ranks.
struct HostSlots {
    std::string host;
    int slots = 1;
    bool operator==(const HostSlots&) const = default;
};

/// Parses "r1:4,r2:2", as in mpirun's --host. A name alone is one slot; a repeated name adds slots.
/// Errors: E607.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// The distribution of ranks over hosts; see lay_out().
enum class MapBy { slot, node };

/// The host of a rank, by the rule of mpirun and srun.
struct RankOnHost {
    int rank = 0;
    int host = 0;  ///< index into the hosts
    int local_rank = 0;
    bool operator==(const RankOnHost&) const = default;
};

/// Distributes ranks over hosts. By slot: the first host is filled first (mpirun's default, srun
/// --distribution=block); by node: one rank to each in turn (--map-by node, cyclic). `ranks` 0: one
/// for each slot. Errors: E607 more ranks than slots.
std::vector<RankOnHost> lay_out(std::span<const HostSlots> hosts, int ranks, MapBy by);

/// Makes a plan for hosts that all are like `node`; without `node`, it has only names and numbers.
/// GPUs have UUIDs only on the host that `node` describes. Errors: those of lay_out and
/// place_on_node.
Placement plan_job(std::span<const HostSlots> hosts,
                   std::span<const RankOnHost> ranks,
                   const NodeTopology* node,
                   const PlacementRules& rules);

/// Returns the differences between `reality` and `plan`, one line each. Cores differ if a rank may
/// run on one that the plan does not give it.
std::vector<std::string> differences(const Placement& plan, std::span<const RankSeat> reality);

/// Throws if there is a difference. Errors: E644 with the first one.
void check_against_plan(const Placement& plan, std::span<const RankSeat> reality);

/// Returns an aligned table with a head, and then the warnings; every line is ended.
std::string placement_table(const Placement& placement);

/// Returns mpirun's --rankfile, with CPUs as the kernel numbers them, for mpirun --mca
/// rmaps_rank_file_physical 1. Errors: E645 if the cores are unknown.
std::string rankfile_text(const Placement& placement);

/// Returns the command line that starts this plan; if mpirun cannot express it, a command with a
/// rankfile. srun: E645 if nodes differ. sbatch: a whole script.
std::string mpirun_text(const Placement& placement, const NodeTopology* node);

/// Does the same as mpirun_text(), for srun.
std::string srun_text(const Placement& placement);

/// Does the same as mpirun_text(), for sbatch.
std::string sbatch_text(const Placement& placement);

}  // namespace lockstep
