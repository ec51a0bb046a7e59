// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts of this process about its launch and its node, without communication: read once.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"

#include <functional>
#include <optional>

namespace lockstep {

/// Each part is read when it is first asked for, and kept: all code that places, checks or binds
/// this rank uses the same facts. Made after the first thread has the cores that it is to keep. One
/// thread.
class RankFacts {
  public:
    /// How the node is read.
    using Reader = std::function<NodeTopology()>;

    /// With GPUs' drivers asked.
    RankFacts();

    /// `read` is called once, or never.
    explicit RankFacts(Reader read);

    /// Errors: those of read_launch_facts().
    const LaunchFacts& launch() const;

    /// Errors: those of the reader.
    const NodeTopology& node() const;

  private:
    Reader read_;
    mutable std::optional<LaunchFacts> launch_;
    mutable std::optional<NodeTopology> node_;
};

}  // namespace lockstep
