// SPDX-License-Identifier: Apache-2.0
// Which processes of a job are on which node.
#pragma once

#include "flight/process_facts.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct RankPlace {
    int rank = 0;
    ProcessIdentity process;
};

struct NodeRanks {
    std::string host;
    std::vector<RankPlace> ranks;  ///< by rank
    std::vector<std::string> addresses = {};
};

/// Nodes in order of their lowest ranks.
struct NodeMap {
    int rank = 0;         ///< of this process
    std::size_t own = 0;  ///< its node
    std::vector<NodeRanks> nodes;
};

}  // namespace lockstep
