// SPDX-License-Identifier: Apache-2.0
// Whether hosts have RDMA in common, before MPI is there.
#pragma once

#include "lockstep/launch/host_probe.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The ports of one launch, for people; `is_there` only where each host has one that leads to all.
struct CommonFabric {
    bool is_there = false;
    std::string note;  ///< "" where no host has a port
};

/// InfiniBand where each host has an active port of it. RoCE where each has an active port whose
/// interface is in one of `joining`, networks in which all hosts were seen to reach each other:
/// many servers have such a card that leads nowhere, and two kinds do not reach each other.
CommonFabric common_fabric(std::span<const HostProbe> hosts, std::span<const std::string> joining);

}  // namespace lockstep
