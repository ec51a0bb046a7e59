// SPDX-License-Identifier: Apache-2.0
// Why ranks of several hosts do not hear each other, seen from one of them without MPI.
#pragma once

#include "lockstep/cluster/host_addresses.hpp"
#include "lockstep/core/error.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// Where mpirun itself listens.
struct LauncherPorts {
    std::vector<std::string> addresses;
    int port = 0;
};

/// Of "1579679744.0;tcp://10.77.0.1,192.168.99.1:47007"; no addresses where the text is another.
LauncherPorts launcher_ports(const std::string& uri);

/// What is seen of the networks of this host.
struct NetworkSight {
    std::vector<std::string> working;  ///< mpirun's host answers in them
    std::vector<std::string> silent;   ///< "192.168.99.0/24 (192.168.99.1: no answer in 2 s)"
};

/// Where mpirun runs, seen from this rank.
enum class MpirunPlace { here, elsewhere };

/// Tries mpirun's ports in each network that `own` shares with it, for 2 s at most. On mpirun's own
/// host its addresses are this host's, which says nothing of a network.
NetworkSight look_at_networks(const LauncherPorts& launcher,
                              const HostAddresses& own,
                              MpirunPlace place);

/// E692 after `waited_s` in `phase` on `host`.
Error no_contact(const std::string& host,
                 const std::string& phase,
                 double waited_s,
                 const HostAddresses& own,
                 const NetworkSight& sight);

}  // namespace lockstep
