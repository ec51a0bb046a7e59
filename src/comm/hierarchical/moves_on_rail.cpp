// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "base/mpi_check.hpp"
#include "hierarchical/rail_work.hpp"

#include <bit>
#include <cstring>

namespace lockstep {
namespace {

/// Beside the tags of a RailPipeline.
constexpr int moves_tag = 1000;

/// Between buffers of one node, where they differ.
void copy(const Segment& segment, ByteRange range, int from, int to) {
    if (from == to || range.size() == 0) return;
    std::memcpy(segment.address(to, range.begin), segment.address(from, range.begin), range.size());
}

}  // namespace

MovesOnRail::~MovesOnRail() {
    // Only after an error: what is under way is left to the job's end.
    for (MPI_Request& request : requests_)
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

void MovesOnRail::post(int node, Direction direction, std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    peers_.push_back(rail_.rank_on_node[static_cast<std::size_t>(node)]);
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    const auto exchange = [&](auto call, const char* name) {
        check_mpi(call(data,
                       static_cast<int>(bytes),
                       MPI_BYTE,
                       peers_.back(),
                       moves_tag,
                       rail_.ranks.handle(),
                       &request),
                  name);
    };
    if (direction == Direction::send)
        exchange(MPI_Isend, "MPI_Isend");
    else
        exchange(MPI_Irecv, "MPI_Irecv");
}

void MovesOnRail::send(const Segment& segment, ByteRange range, int node) {
    post(node, Direction::send, segment.address(own_rail(), range.begin), range.size());
}

void MovesOnRail::receive(const Segment& segment, ByteRange range, int node) {
    post(node, Direction::receive, segment.address(own_rail(), range.begin), range.size());
}

void MovesOnRail::wait_for_all() {
    const auto all_came = [&] {
        int done = 0;
        check_mpi(
            MPI_Testall(
                static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
        return done != 0;
    };
    if (!spin_until(all_came, Patience::none, wait_.limit_s)) wait_.give_up(pending_peers());
    requests_.clear();
    peers_.clear();
}

std::vector<int> MovesOnRail::pending_peers() {
    std::vector<int> pending;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        int done = 0;
        check_mpi(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done == 0) pending.push_back(peers_[i]);
    }
    return pending;
}

void MovesOnRail::finish(const Segment&) {
    wait_for_all();
}

/// Calls act(rank, part) for the parts of this rail's stripe that ranks of `node` contribute.
template <class Act>
void GatherOnRail::for_each_part(const Segment& segment, int node, Act&& act) const {
    const ByteRange stripe = own_stripe(segment);
    for (const int rank : nodes().ranks_on(node)) {
        const ByteRange whole = byte_stripe(segment.message.bytes, rank, nodes().all().size());
        const ByteRange part = common_part(whole, stripe);
        if (part.size() > 0) act(rank, part);
    }
}

void GatherOnRail::begin(const Segment& segment) {
    const int here = nodes().index();
    for_each_part(segment, here, [&](int rank, ByteRange part) {
        copy(segment, part, nodes().local_rank_of(rank), own_rail());
    });
    for (int step = 1; step < nodes().count(); ++step) {
        const int to = (here + step) % nodes().count();
        const int from = (here + nodes().count() - step) % nodes().count();
        for_each_part(segment, from, [&](int, ByteRange part) { receive(segment, part, from); });
        for_each_part(segment, here, [&](int, ByteRange part) { send(segment, part, to); });
    }
}

void BroadcastOnRail::begin(const Segment& segment) {
    const int count = nodes().count(), root_node = nodes().node_of(root_);
    const int position = (nodes().index() - root_node + count) % count;
    const auto node_at = [&](int at) { return (at + root_node) % count; };
    const ByteRange stripe = own_stripe(segment);
    const int highest = position == 0
                            ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)))
                            : position & -position;
    if (position == 0) {
        copy(segment, stripe, nodes().local_rank_of(root_), own_rail());
    } else {
        receive(segment, stripe, node_at(position - highest));
        wait_for_all();
    }
    for (int distance = highest / 2; distance > 0; distance /= 2)
        if (position + distance < count) send(segment, stripe, node_at(position + distance));
}

}  // namespace lockstep
