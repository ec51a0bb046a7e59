// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_stripes.hpp"

#include "nccl/nccl_reduction.hpp"

namespace lockstep {
namespace {

/// The stripes of a buffer, one for each rank.
class Stripes {
  public:
    Stripes(const DeviceSpan& buffer, int ranks) : buffer_(buffer), ranks_(ranks) {}

    DeviceSpan of(int rank) const {
        const ElementRange range = stripe_of(buffer_.count, buffer_.type, rank, ranks_);
        auto* const begin =
            static_cast<std::byte*>(buffer_.data) + range.begin * size_of(buffer_.type);
        return {begin, range.size(), buffer_.type};
    }

    /// NCCL's own reduce-scatter and all-gather know equal parts only.
    bool are_equal() const {
        return of(0).count * static_cast<std::size_t>(ranks_) == buffer_.count &&
               of(ranks_ - 1).count == of(0).count;
    }

  private:
    DeviceSpan buffer_;
    int ranks_;
};

}  // namespace

void send_to(NcclCommunicator::Inside& inside, int peer, const DeviceSpan& elements) {
    inside.handle().call("ncclSend", [&](nccl::Comm& comm) {
        return inside.nccl().send(
            elements.data, elements.count, nccl_type(elements.type), peer, comm, inside.stream());
    });
}

void receive_from(NcclCommunicator::Inside& inside, int peer, const DeviceSpan& elements) {
    inside.handle().call("ncclRecv", [&](nccl::Comm& comm) {
        return inside.nccl().recv(
            elements.data, elements.count, nccl_type(elements.type), peer, comm, inside.stream());
    });
}

void sum_everywhere(NcclCommunicator::Inside& inside, const DeviceSpan& buffer, nccl::RedOp op) {
    inside.handle().call("ncclAllReduce", [&](nccl::Comm& comm) {
        return inside.nccl().all_reduce(buffer.data,
                                        buffer.data,
                                        buffer.count,
                                        nccl_type(buffer.type),
                                        op,
                                        comm,
                                        inside.stream());
    });
}

void scatter_sum(NcclCommunicator::Inside& inside, const DeviceSpan& buffer, nccl::RedOp op) {
    const int rank = inside.bootstrap().rank(), size = inside.bootstrap().size();
    const Stripes stripes(buffer, size);
    const auto type = nccl_type(buffer.type);
    if (stripes.are_equal()) {
        inside.handle().call("ncclReduceScatter", [&](nccl::Comm& comm) {
            const DeviceSpan own = stripes.of(rank);
            return inside.nccl().reduce_scatter(
                buffer.data, own.data, own.count, type, op, comm, inside.stream());
        });
        return;
    }
    for (int owner = 0; owner < size; ++owner) {
        const DeviceSpan stripe = stripes.of(owner);
        if (stripe.count == 0) continue;
        inside.handle().call("ncclReduce", [&](nccl::Comm& comm) {
            return inside.nccl().reduce(
                stripe.data, stripe.data, stripe.count, type, op, owner, comm, inside.stream());
        });
    }
}

void gather_stripes(NcclCommunicator::Inside& inside, const DeviceSpan& buffer) {
    const int rank = inside.bootstrap().rank(), size = inside.bootstrap().size();
    const Stripes stripes(buffer, size);
    const DeviceSpan own = stripes.of(rank);
    if (stripes.are_equal()) {
        inside.handle().call("ncclAllGather", [&](nccl::Comm& comm) {
            return inside.nccl().all_gather(
                own.data, buffer.data, own.count, nccl_type(buffer.type), comm, inside.stream());
        });
        return;
    }
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        if (own.count > 0) send_to(inside, peer, own);
        if (stripes.of(peer).count > 0) receive_from(inside, peer, stripes.of(peer));
    }
}

}  // namespace lockstep
