// SPDX-License-Identifier: Apache-2.0
// Whether each node can open a connection to every other, over the addresses that they share.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A port that another node listens on.
struct OfferedPort {
    std::string host, address;
    int port = 0;
};

/// Connects to all of them at once and closes again. Those that did not answer within 2 s.
std::vector<UnreachedAddress> unreached_of(const std::vector<OfferedPort>& ports);

/// Collective over one rank of each node. Each listens for a moment on a port that the system picks
/// and connects to the others' usable addresses in networks that both are in, all at once, for
/// 2 s at most. Nothing is accepted or read. Nodes without a common network reach nothing.
NetworkProbe probe_addresses(const Communicator& leaders, const NodeTopology& node);

}  // namespace lockstep
