// SPDX-License-Identifier: Apache-2.0
// What ranks measure together for the doctor: the speed of links, and whether each node can open a
// connection to every other over the addresses that they share. And the reason why ranks of several
// hosts do not reach each other, found from one of them without MPI.
#pragma once

#include "lockstep/cluster/doctor.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A port that another node listens on.
struct OfferedPort {
    std::string host, address;
    int port = 0;
};

/// A port that the system picks on each of this node's usable addresses, open during its lifetime.
/// Nothing is accepted or read.
class OpenPorts {
  public:
    explicit OpenPorts(const NodeTopology& node);

    /// Returns the data that others need to try them, on one line.
    const std::string& offer() const { return offer_; }

    /// Connects to the ports that others offer in this node's networks, all at once, for at most 2
    /// s. offers[own_index] is this node's. Another host's address that this one also has counts as
    /// unreached.
    NetworkProbe try_others(const std::vector<std::string>& offers, int own_index) const;

  private:
    std::string host_, offer_;
    HostAddresses own_;
    std::vector<UniqueFd> sockets_;
};

/// Connects to all of them at once and closes again. Returns those that did not answer within 2 s.
std::vector<UnreachedAddress> unreached_of(const std::vector<OfferedPort>& ports);

/// Collective over one rank of each node, each with its OpenPorts. Nodes without a common network
/// reach nothing.
NetworkProbe probe_addresses(const Communicator& leaders, const NodeTopology& node);

/// Collective over one rank of each node. Measures every pair of nodes. Each node reports only its
/// slow links, as ranks of `world`, because the data at the root must not grow with the square of
/// the nodes.
void test_links(const Communicator& world, const Communicator& leaders, SelfTestFacts& test);

/// Returns the pairs below slow_link_share of `median`, and doubtful ones; slowest first, at most
/// 16.
std::vector<PairSpeed> slow_pairs_of(std::vector<PairSpeed> pairs, double median);

/// Collective. Returns the median (the greater of two) of all ranks' `values`, none below 0; 0 if
/// there are none. It takes eight sums of 256 counts for any number of values.
double median_over(const Communicator& ranks, std::span<const double> values);

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
