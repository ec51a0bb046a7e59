// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses a rank's cores, if its launcher bound none, and their memory, before MPI and OpenMP
/// start.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The NUMA node of all `cpus`; nothing if they lie in several, if only one has memory, or if it is
/// not known.
std::optional<int> memory_node_of(const NodeTopology& node, const std::vector<int>& cpus);

/// Memory that this thread and those it will make touch first comes from `numa_node` while there is
/// some (set_mempolicy, MPOL_PREFERRED); kept over exec. False if the system refuses, as
/// containers do, or where somebody (numactl) has chosen another policy, which is kept.
bool prefer_memory_of(int numa_node);

/// The NUMA node that this thread prefers (get_mempolicy); nothing if it prefers none.
std::optional<int> preferred_memory_node();

/// Set for a rank that was bound so, to its cores ("4-7"); "off" forbids it.
inline constexpr const char* bound_variable = "LOCKSTEP_BOUND";

/// The variable, the first that is set, by which an OpenMP runtime binds the first thread of a
/// program as it is loaded; "" if none is.
std::string openmp_binding(const Environment& environment);

/// What a rank does about its cores before anything has threads.
struct EarlyBinding {
    std::vector<int> cpus;                         ///< empty: leave everything as it is
    std::map<std::string, std::string> variables;  ///< for OpenMP, which reads them once, at start
    std::optional<int> memory_node;                ///< node to take memory from, if that matters
    std::string why_not;                           ///< whose word it is that nothing is bound
};

/// Whether early_binding() is needed: not if this rank was bound before, is alone on its node, or
/// if LOCKSTEP_BOUND forbids it. Reads no topology.
bool may_bind(const LaunchFacts& launch, const Environment& environment);

/// The seat that place_on_node() gives this rank, by its launcher's data about ranks on this node.
/// Nothing is bound where the launcher bound, where ranks are more than cores, or where
/// GOMP_CPU_AFFINITY, KMP_AFFINITY or LOCKSTEP_BOUND=off say that the user does it. OMP_PLACES,
/// OMP_PROC_BIND and OMP_NUM_THREADS are added unless the user set any of them. Memory comes from
/// the NUMA node of the cores, also where the launcher chose those. `node` must be as this process
/// sees it; `offered` is what launcher_cpus() says.
EarlyBinding early_binding(const NodeTopology& node,
                           const LaunchFacts& launch,
                           const Environment& environment,
                           const std::vector<int>& offered = {});

/// Lets the calling thread run on `cpus` only; false if the system refuses.
bool bind_thread(const std::vector<int>& cpus);

}  // namespace lockstep
