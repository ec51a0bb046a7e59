// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages.hpp"

#include "base/mpi_check.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// MPI counts in int.
constexpr std::size_t largest_piece = std::size_t{1} << 30;

template <class Post>
void in_pieces(const Elements& all, Post&& post) {
    for (std::size_t done = 0; done < all.bytes(); done += largest_piece)
        post(all.data + done, static_cast<int>(std::min(all.bytes() - done, largest_piece)));
}

}  // namespace

Elements Elements::chunk(int index, int parts) const {
    const ElementRange range = stripe_of(count, type, ((index % parts) + parts) % parts, parts);
    return {data + range.begin * size_of(type), range.size(), type};
}

void Messages::start_send(const Elements& from, int to) {
    in_pieces(from, [&](std::byte* data, int bytes) {
        MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
        check_mpi(MPI_Isend(data, bytes, MPI_BYTE, to, 0, ranks_.handle(), &request), "MPI_Isend");
    });
}

void Messages::start_receive(const Elements& into, int from) {
    in_pieces(into, [&](std::byte* data, int bytes) {
        MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, from, 0, ranks_.handle(), &request),
                  "MPI_Irecv");
    });
}

void Messages::finish() {
    check_mpi(
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
        "MPI_Waitall");
    requests_.clear();
}

void Messages::send(const Elements& from, int to) {
    start_send(from, to);
    finish();
}

void Messages::receive(const Elements& into, int from) {
    start_receive(into, from);
    finish();
}

void Messages::exchange(const Elements& out, int to, const Elements& in, int from) {
    start_receive(in, from);
    start_send(out, to);
    finish();
}

}  // namespace lockstep
