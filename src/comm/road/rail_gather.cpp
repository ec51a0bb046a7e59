// SPDX-License-Identifier: Apache-2.0
// The second half of an all-reduce whose first half is a plan to owners (rail_plan.cpp): between
// them the owners update their parts. Values go from where they are to where they belong, without a
// copy.
//
// What must never happen:
// - A part is overwritten while a rank of this node still computes with it: begin() is called after
//   the step's sums, so all ranks of all nodes have ended their passes.
// - Messages of two stripes are confused: all nodes post them in the same order.
//
// Tested: comm/road/node_exchange_test.cpp.

#include "road/rail_gather.hpp"

#include "lockstep/core/error.hpp"

#include "base/mpi_check.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t longest_message_floats = std::size_t{1} << 28;  // MPI counts in an int

}  // namespace

void RailGather::begin(float* values, std::span<const FloatRange> stripes) {
    expect(is_done(), "one exchange at a time");
    requests_.clear();
    awaited_.clear();
    passed_ = 0;
    const int nodes = static_cast<int>(rail_.rank_on_node.size());
    for (const FloatRange stripe : stripes)
        for (int distance = 1; distance < nodes; ++distance) exchange(values, stripe, distance);
}

bool RailGather::is_done() {
    for (; passed_ < requests_.size(); ++passed_) {
        int done = 0;
        check_mpi(MPI_Test(&requests_[passed_], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done == 0) return false;
    }
    return true;
}

void RailGather::exchange(float* values, FloatRange stripe, int distance) {
    const int nodes = static_cast<int>(rail_.rank_on_node.size());
    const auto each_message = [&](int owner, int peer, auto&& post) {
        const FloatRange part = part_of(stripe, owner, nodes);
        const int rank = rail_.rank_on_node[static_cast<std::size_t>(peer)];
        for (std::size_t at = part.begin; at < part.end; at += longest_message_floats)
            post(values + at,
                 static_cast<int>(std::min(longest_message_floats, part.end - at)),
                 rank);
    };
    const int from = (node_ + nodes - distance) % nodes, to = (node_ + distance) % nodes;
    each_message(from, from, [&](float* at, int count, int rank) {
        check_mpi(
            MPI_Irecv(at, count, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), next_request(rank)),
            "MPI_Irecv");
    });
    each_message(node_, to, [&](const float* at, int count, int rank) {
        check_mpi(
            MPI_Isend(at, count, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), next_request(rank)),
            "MPI_Isend");
    });
}

MPI_Request* RailGather::next_request(int rank) {
    awaited_.push_back(rank);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
}

}  // namespace lockstep
