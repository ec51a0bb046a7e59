// SPDX-License-Identifier: Apache-2.0
// Completes a topology, and checks it for contradictions.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <string>

namespace lockstep {

/// Fills in missing facts: every CPU is allowed and is a core of its own, and all are in one
/// socket, one NUMA node and one cache. Addresses become lower case.
void complete_topology(NodeTopology& node);

/// Checks a topology. Errors: E606 naming `origin` and the two facts that contradict each other.
void check_topology(const NodeTopology& node, const std::string& origin);

}  // namespace lockstep
