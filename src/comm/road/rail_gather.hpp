// SPDX-License-Identifier: Apache-2.0
// Sends what each node owns of a stripe to the owners of the same stripe on the other nodes.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "road/rail_sum.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include <mpi.h>

namespace lockstep {

/// One exchange at a time: begin(), then is_done() until it is true. Node i of n owns part i of n
/// of each stripe.
class RailGather {
  public:
    /// `rail` must outlive this. `tag`: of no other messages on the rail.
    RailGather(const Rail& rail, int node, int tag) : rail_(rail), node_(node), tag_(tag) {}

    /// The stripes lie in `values`; the parts of other nodes are overwritten.
    void begin(float* values, std::span<const FloatRange> stripes);

    /// Never waits.
    bool is_done();

    /// Returns the rank on the rail whose message is waited for; -1: none.
    int awaited_rank() const { return passed_ < awaited_.size() ? awaited_[passed_] : -1; }

  private:
    void exchange(float* values, FloatRange stripe, int distance);
    MPI_Request* next_request(int rank);

    const Rail& rail_;
    const int node_, tag_;
    std::vector<MPI_Request> requests_;
    std::vector<int> awaited_;  ///< ranks, by request
    std::size_t passed_ = 0;    ///< requests that are through, from the first on
};

}  // namespace lockstep
