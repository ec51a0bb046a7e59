// SPDX-License-Identifier: Apache-2.0
// Tests whether each node can open a connection to every other, over the addresses that they share.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/cluster/host_addresses.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/files.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A port that another node listens on.
struct OfferedPort {
    std::string host, address;
    int port = 0;
};

/// A port on one own address.
struct Listener {
    HostAddress at;
    int port = 0;
    UniqueFd socket;
};

/// A port that the system picks on each of this node's usable addresses, open during its lifetime.
/// Nothing is accepted or read.
class OpenPorts {
  public:
    explicit OpenPorts(const NodeTopology& node);

    /// Returns the data that others need to try them, on one line.
    std::string offer() const;

    /// Connects to the ports that others offer in this node's networks, all at once, for at most 2
    /// s. offers[own_index] is this node's. Another host's address that this one also has counts as
    /// unreached.
    NetworkProbe try_others(const std::vector<std::string>& offers, int own_index) const;

  private:
    std::string host_;
    HostAddresses own_;
    std::vector<Listener> listeners_;
};

/// Connects to all of them at once and closes again. Returns those that did not answer within 2 s.
std::vector<UnreachedAddress> unreached_of(const std::vector<OfferedPort>& ports);

/// Collective over one rank of each node, each with its OpenPorts. Nodes without a common network
/// reach nothing.
NetworkProbe probe_addresses(const Communicator& leaders, const NodeTopology& node);

}  // namespace lockstep
