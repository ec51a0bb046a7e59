// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses cores and memory of a rank that its launcher did not bind, before MPI and OpenMP start.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the NUMA node of all `cpus`; nothing if they lie in several, if only one node has
/// memory, or if it is unknown.
std::optional<int> memory_node_of(const NodeTopology& node, const std::vector<int>& cpus);

/// Makes this thread and those it creates take new memory from `numa_node` while there is some
/// (set_mempolicy, MPOL_PREFERRED); kept over exec. Returns false if the system refuses, as
/// containers do, or if another policy was chosen before (numactl), which is kept.
bool prefer_memory_of(int numa_node);

/// Returns the NUMA node that this thread prefers (get_mempolicy); nothing if it prefers none.
std::optional<int> preferred_memory_node();

/// Variable with the cores ("4-7") of a rank that was bound here; "off" forbids binding.
inline constexpr const char* bound_variable = "LOCKSTEP_BOUND";

/// Returns the first variable set by which an OpenMP runtime binds the first thread of a program
/// when it is loaded; "" if none is.
std::string openmp_binding(const Environment& environment);

/// The binding of a rank before it has other threads.
struct EarlyBinding {
    std::vector<int> cpus;  ///< empty: no change
    std::map<std::string, std::string>
        variables;                   ///< variables for OpenMP, which reads them once, at start
    std::optional<int> memory_node;  ///< node to take memory from, if that matters
    std::string why_not;             ///< the setting that forbids binding
};

/// Returns true if early_binding() is needed. It is not if this rank was bound before, is alone on
/// its node, or if LOCKSTEP_BOUND forbids it. Reads no topology.
bool may_bind(const LaunchFacts& launch, const Environment& environment);

/// Returns the seat that place_on_node() gives this rank, by its launcher's data about ranks on
/// this node. Nothing is bound if the launcher bound, if there are more ranks than cores, or if
/// GOMP_CPU_AFFINITY, KMP_AFFINITY or LOCKSTEP_BOUND=off show that the user binds. OMP_PLACES,
/// OMP_PROC_BIND and OMP_NUM_THREADS are added unless the user set any of them. Memory comes from
/// the NUMA node of the cores, even if the launcher chose those. `node` must be as this process
/// sees it; `offered` is the result of launcher_cpus().
EarlyBinding early_binding(const NodeTopology& node,
                           const LaunchFacts& launch,
                           const Environment& environment,
                           const std::vector<int>& offered = {});

/// Restricts the calling thread to `cpus`. Returns false if the system refuses.
bool bind_thread(const std::vector<int>& cpus);

}  // namespace lockstep
