// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks that own the same stripe on different nodes.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

#include <mpi.h>

namespace lockstep {

/// The ranks that own the same stripe, by node, and their communicator.
struct Rail {
    Communicator ranks;
    std::vector<int> rank_on_node;
};

/// Those that one rank posts and has not seen through. Never waits. Nodes post the messages
/// between them in the same order.
class RailMessages {
  public:
    /// `rail` must outlive this. `tag`: of no other messages on the rail.
    RailMessages(const Rail& rail, int tag) : rail_(rail), tag_(tag) {}

    /// Forgets them; all are through.
    void clear();

    /// Floats at `from` and `to` stay there until the message is through. None: an empty message.
    void send(int node, const float* from, std::size_t count);
    void receive(int node, float* to, std::size_t count);

    /// Returns the number of those posted since clear().
    std::size_t count() const { return requests_.size(); }

    /// Returns true if the first `count` of them are through, or all.
    bool are_through(std::size_t count);
    bool are_through() { return are_through(count()); }

    /// Returns the rank on the rail whose message is waited for; -1: none.
    int awaited_rank() const { return passed_ < ranks_.size() ? ranks_[passed_] : -1; }

  private:
    template <class Post>
    void post(int node, std::size_t count, Post&& post_part);

    const Rail& rail_;
    const int tag_;
    std::vector<MPI_Request> requests_;
    std::vector<int> ranks_;  ///< by request
    std::size_t passed_ = 0;  ///< requests that are through, from the first on
};

}  // namespace lockstep
