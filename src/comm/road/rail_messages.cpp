// SPDX-License-Identifier: Apache-2.0
#include "road/rail_messages.hpp"

#include "base/mpi_check.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t longest_message_floats = std::size_t{1} << 28;  // MPI counts in an int

}  // namespace

void RailMessages::clear() {
    requests_.clear();
    ranks_.clear();
    passed_ = 0;
}

template <class Post>
void RailMessages::post(int node, std::size_t count, Post&& post_part) {
    const int rank = rail_.rank_on_node[static_cast<std::size_t>(node)];
    std::size_t at = 0;
    do {
        const std::size_t part = std::min(longest_message_floats, count - at);
        ranks_.push_back(rank);
        post_part(at, static_cast<int>(part), rank, &requests_.emplace_back(MPI_REQUEST_NULL));
        at += part;
    } while (at < count);
}

void RailMessages::send(int node, const float* from, std::size_t count) {
    post(node, count, [&](std::size_t at, int part, int rank, MPI_Request* request) {
        check_mpi(MPI_Isend(from + at, part, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), request),
                  "MPI_Isend");
    });
}

void RailMessages::receive(int node, float* to, std::size_t count) {
    post(node, count, [&](std::size_t at, int part, int rank, MPI_Request* request) {
        check_mpi(MPI_Irecv(to + at, part, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), request),
                  "MPI_Irecv");
    });
}

bool RailMessages::are_through(std::size_t count) {
    for (int done = 1; passed_ < count && done != 0;) {
        check_mpi(MPI_Test(&requests_[passed_], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) ++passed_;
    }
    return passed_ >= count;
}

}  // namespace lockstep
