// SPDX-License-Identifier: Apache-2.0
// What this process, machine and network allow, asked before mpirun, which says less or nothing.
#pragma once

#include "lockstep/cluster/host_addresses.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/launch/host_probe.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the network in which this host and all `hosts` reach each other, as each of them tries
/// over ssh. Of several it is the one by which this host's routes lead to them. `own` are this
/// host's addresses. Nothing is tried if all are this host, or if OMPI_MCA_* choose interfaces.
/// Errors: E647 for a name that cannot be resolved, a host that does not answer, or if no network
/// connects them.
LaunchNetwork network_towards(std::span<const std::string> hosts,
                              const HostAddresses& own,
                              const Environment& environment);

/// Returns the arguments for mpirun.
std::vector<std::string> network_words(const LaunchNetwork& network);

/// Returns the arguments for the transport of messages: sockets and shared memory, unless hosts
/// share RDMA or the user's OMPI_MCA_pml says otherwise: then Open MPI takes its best.
std::vector<std::string> carrier_words(const LaunchNetwork& network,
                                       const Environment& environment);

/// Checks the number of ranks. Errors: E601 if `ranks` exceed the cores of this process.
void check_cores(int ranks);

/// Raises the soft limit of open files if `ranks` of this node need more. Errors: E693 if the hard
/// limit is too low, or if the limit of file sizes is below Open MPI's files.
void settle_limits(int ranks);

}  // namespace lockstep
