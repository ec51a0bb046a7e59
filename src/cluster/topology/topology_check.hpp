// SPDX-License-Identifier: Apache-2.0
// What a topology leaves open, and what it must not say.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <string>

namespace lockstep {

/// Fills in what follows where it is not said: every CPU is allowed, is a core of its own, and all
/// are in one socket, one NUMA node and one cache. Addresses become lower case.
void complete_topology(NodeTopology& node);

/// Errors: E606 naming `origin` and the two facts that contradict each other.
void check_topology(const NodeTopology& node, const std::string& origin);

}  // namespace lockstep
