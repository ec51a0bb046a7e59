// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds a network that connects hosts before MPI starts, and whether they share RDMA. It asks each
/// host over ssh for its addresses and ports, and then to try those of the others.
#pragma once

#include "lockstep/cluster/doctor.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An active RDMA port of a host.
struct ProbedPort {
    std::string name;        ///< "mlx5_0:1"
    std::string link_layer;  ///< "InfiniBand" or "Ethernet"
    std::string interface;   ///< its network interface, "" if it has none
    bool operator==(const ProbedPort&) const = default;
};

/// The answer of one host.
struct HostProbe {
    std::string name;                         ///< name as the user wrote it
    HostAddresses own;                        ///< addresses that it offers for a network
    std::vector<UnreachedAddress> unreached;  ///< others' that it does not reach, in its networks
    std::vector<ProbedPort> rdma_ports = {};  ///< empty from an older program
};

/// The network of a launch.
struct LaunchNetwork {
    bool is_needed = false;  ///< some host is not this one
    std::string network;     ///< "10.0.0.0/24"; "" if the user's variables choose
    std::string note;        ///< for people: hosts it connects, networks left out, and reasons
    bool has_rdma = false;   ///< true if all hosts have a common fabric
};

/// Talks over stdin and stdout with ask_hosts(): sends this host's addresses, receives those of all
/// hosts, tries them, and reports those that did not answer. Returns when stdin closes, or after
/// `limit_s`.
void answer_probe(double limit_s = 60);

/// Starts each line of `commands` ("ssh", "n1", "/opt/lockstep", ...), one for each host; each must
/// run answer_probe(). Errors: E647 naming the host that does not answer within `limit_s`, with its
/// last output.
std::vector<HostProbe> ask_hosts(std::span<const std::string> names,
                                 std::span<const std::vector<std::string>> commands,
                                 double limit_s = 30);

/// Returns a network in which every host has an address and reached all the others: `preferred` if
/// it is one, else the first. Errors: E647 if there is none, with the reason for each.
LaunchNetwork choose_network(std::span<const HostProbe> hosts, const std::string& preferred);

}  // namespace lockstep
