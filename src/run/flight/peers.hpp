// SPDX-License-Identifier: Apache-2.0
// The processes of a few other ranks, and their state.
#pragma once

#include "flight/process_facts.hpp"

#include <filesystem>
#include <map>

namespace lockstep {

/// The next ranks after one's own, in a circle: each rank is watched by several, and no rank reads
/// the process table of a large node.
class Peers {
  public:
    Peers(std::filesystem::path folder, int rank, int ranks);

    /// Returns the worst state: gone (without an end mark), stopped, or running. Reads files.
    Life worst();

  private:
    std::filesystem::path folder_;
    std::map<int, ProcessIdentity> known_;
    std::vector<int> unknown_;
};

}  // namespace lockstep
