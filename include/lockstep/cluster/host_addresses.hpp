// SPDX-License-Identifier: Apache-2.0
/// @file
/// The addresses of a node that other nodes may use, and the reasons why others are left out.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An address of a network interface.
struct HostAddress {
    std::string interface;
    std::string address;  ///< "10.0.0.7"
    std::string network;  ///< "10.0.0.0/24"
    bool operator==(const HostAddress&) const = default;
};

/// An interface that is not used.
struct LeftOutInterface {
    std::string name, why;
    bool operator==(const LeftOutInterface&) const = default;
};

/// All addresses of one node: those that other nodes may use, and the rest.
struct HostAddresses {
    std::vector<HostAddress> usable;
    std::vector<LeftOutInterface> left_out;
};

/// Returns the addresses by which other nodes could reach this one. Left out are loopback,
/// interfaces that are down, bridges of containers and virtual machines, and link-local addresses.
HostAddresses addresses_of(const NodeTopology& node);

/// Returns the networks in which every node has a usable address, sorted.
std::vector<std::string> shared_networks(std::span<const NodeTopology* const> nodes);

/// Returns "10.0.0.0/24" for "10.0.0.7/24", for IPv4 and IPv6; nothing for other texts.
std::optional<std::string> network_of(std::string_view address_with_prefix);

}  // namespace lockstep
