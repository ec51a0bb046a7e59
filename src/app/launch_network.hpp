// SPDX-License-Identifier: Apache-2.0
// Which network of this host an mpirun over ssh should use.
#pragma once

#include "lockstep/cluster/host_addresses.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What mpirun is told about networks.
struct LaunchNetwork {
    bool is_needed = false;             ///< some host is another one
    std::string network;                ///< "10.0.0.0/24": the one that leads to all others; or ""
    std::vector<std::string> left_out;  ///< interfaces that lead nowhere, if there is no such one
};

/// Asks the system's routes; nothing is sent. `own` are this host's addresses.
/// Errors: E647 for a name that cannot be resolved or that no route leads to.
LaunchNetwork network_towards(std::span<const std::string> hosts, const HostAddresses& own);

/// The words for mpirun.
std::vector<std::string> network_words(const LaunchNetwork& network);

}  // namespace lockstep
