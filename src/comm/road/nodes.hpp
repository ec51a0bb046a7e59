// SPDX-License-Identifier: Apache-2.0
// The ranks that share memory, and those that communicate with other nodes; and the implementation
// of make_exchange() for several ranks.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"

#include "road/rail.hpp"

#include <memory>
#include <vector>

namespace lockstep {

/// Collective. Returns the lowest rank that shares memory with this one, which identifies a node.
int node_by_memory(const Communicator& ranks);

/// Ranks grouped by node; nodes are numbered in the order of their lowest ranks. Local rank j of a
/// node owns stripe j of everything. The number of stripes (and of rails between nodes) is the
/// smallest number of ranks on a node.
class Nodes {
  public:
    /// Collective. `node`: any number, the same for the ranks that share memory.
    Nodes(const Communicator& ranks, int node);

    const Communicator& all() const { return all_; }
    const Communicator& local() const { return local_; }  ///< this rank's node, in rank order
    int count() const { return static_cast<int>(members_.size()); }
    int index() const { return node_of(all_.rank()); }
    int rails() const { return rails_; }

    int node_of(int rank) const { return node_of_rank_[static_cast<std::size_t>(rank)]; }
    int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }
    const std::vector<int>& ranks_on(int node) const {
        return members_[static_cast<std::size_t>(node)];
    }

    /// Returns true if this rank owns a stripe: that of its local rank.
    bool has_rail() const { return local_.rank() < rails_; }
    Rail own_rail() const;

  private:
    Communicator all_, local_;
    std::vector<int> node_of_rank_, local_rank_of_;
    std::vector<std::vector<int>> members_;  ///< ranks by node
    int rails_ = 0;
};

/// Collective over all ranks of `nodes`. Slots and values of a node are in one window that its
/// ranks share; between nodes stripes travel in messages. One node: only shared memory; one rank
/// per node: only messages. Errors: E632 no room for the window.
std::unique_ptr<Exchange> make_node_exchange(Nodes nodes,
                                             const FlatLayout& layout,
                                             const TreePlan& plan,
                                             ShardState shards = ShardState::node);

}  // namespace lockstep
