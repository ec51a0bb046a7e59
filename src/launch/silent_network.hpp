// SPDX-License-Identifier: Apache-2.0
// The reason why ranks of several hosts do not reach each other, found from one of them without
// MPI.
#pragma once

#include "lockstep/cluster/host_addresses.hpp"
#include "lockstep/core/error.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// The addresses and port on which mpirun listens.
struct LauncherPorts {
    std::vector<std::string> addresses;
    int port = 0;
};

/// Parses "1579679744.0;tcp://10.77.0.1,192.168.99.1:47007"; no addresses for other text.
LauncherPorts launcher_ports(const std::string& uri);

/// The state of this host's networks.
struct NetworkSight {
    std::vector<std::string> working;  ///< networks in which mpirun's host answers
    std::vector<std::string> silent;   ///< "192.168.99.0/24 (192.168.99.1: no answer in 2 s)"
};

/// The host of mpirun, relative to this rank.
enum class MpirunPlace { here, elsewhere };

/// Tries mpirun's ports in each network that `own` shares with it, for at most 2 s. On mpirun's own
/// host its addresses are this host's, so the test proves nothing.
NetworkSight look_at_networks(const LauncherPorts& launcher,
                              const HostAddresses& own,
                              MpirunPlace place);

/// Returns E692 after `waited_s` in `phase` on `host`.
Error no_contact(const std::string& host,
                 const std::string& phase,
                 double waited_s,
                 const HostAddresses& own,
                 const NetworkSight& sight);

}  // namespace lockstep
