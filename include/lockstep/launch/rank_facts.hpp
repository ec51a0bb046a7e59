// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts of this process about its launch and its node, read once and without communication.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"

#include <functional>
#include <optional>
#include <utility>

namespace lockstep {

/// Each part is read on first use and then cached: all code that places, checks or binds this rank
/// uses the same facts. Make it after the first thread has the cores that it is to keep. One
/// thread.
class RankFacts {
  public:
    /// Reads the node.
    using Reader = std::function<NodeTopology()>;

    /// Reads the node with its GPU drivers.
    RankFacts();

    /// `read` is called at most once.
    explicit RankFacts(Reader read) : read_(std::move(read)) {}

    /// Returns the launch. Errors: those of read_launch_facts().
    const LaunchFacts& launch() const;

    /// Returns the node. Errors: those of the reader.
    const NodeTopology& node() const;

  private:
    Reader read_;
    mutable std::optional<LaunchFacts> launch_;
    mutable std::optional<NodeTopology> node_;
};

}  // namespace lockstep
