// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_collectives.hpp"

#include "nccl/nccl_inside.hpp"
#include "nccl/nccl_reduction.hpp"

#include <utility>

namespace lockstep {
namespace {

std::byte* at(const DeviceSpan& buffer, std::size_t element) {
    return static_cast<std::byte*>(buffer.data) + element * size_of(buffer.type);
}

/// The stripes of a buffer, one for each rank.
class Stripes {
  public:
    Stripes(const DeviceSpan& buffer, int ranks) : buffer_(buffer), ranks_(ranks) {}

    ElementRange of(int rank) const { return stripe_of(buffer_.count, buffer_.type, rank, ranks_); }
    std::byte* begin(int rank) const { return at(buffer_, of(rank).begin); }

    /// NCCL's own reduce-scatter and all-gather know equal parts only.
    bool are_equal() const {
        return of(0).size() * static_cast<std::size_t>(ranks_) == buffer_.count &&
               of(ranks_ - 1).size() == of(0).size();
    }

    template <class Action>
    void for_each(Action&& action) const {
        for (int rank = 0; rank < ranks_; ++rank)
            if (of(rank).size() > 0) action(rank, begin(rank), of(rank).size());
    }

  private:
    DeviceSpan buffer_;
    int ranks_;
};

}  // namespace

bool NcclWork::is_done() const {
    return inside_->guarded([&] {
        inside_->handle().poll();
        return inside_->has_passed(pending_->end);
    });
}

void NcclWork::wait() const {
    inside_->guarded([&] { inside_->wait_for(*pending_); });
}

void NcclWork::let_wait(GpuStream stream) const {
    inside_->guarded([&] {
        check_cuda(inside_->cuda(),
                   inside_->cuda().stream_wait_event(stream, pending_->end.value()),
                   "cudaStreamWaitEvent");
    });
}

NcclCollectives::NcclCollectives(NcclCommunicator& communicator) : inside_(communicator.inside()) {}

NcclWork NcclCollectives::issue(const char* what,
                                const std::function<void()>& calls,
                                GpuStream before,
                                Keep keep) {
    return inside_.guarded([&] {
        auto pending = std::make_shared<NcclPending>();
        pending->what = what;
        pending->buffers = std::move(keep);
        pending->end = make_event(inside_.runtime());
        let_wait(inside_.runtime(), inside_.stream(), before);
        NcclGroup group(inside_);
        calls();
        group.end(what);
        check_cuda(inside_.cuda(),
                   inside_.cuda().record_event(pending->end.value(), inside_.stream()),
                   "cudaEventRecord");
        inside_.keep(pending);
        return NcclWork(inside_, pending);
    });
}

NcclWork NcclCollectives::all_reduce(std::span<const DeviceSpan> buffers,
                                     double factor,
                                     GpuStream before,
                                     Keep keep) {
    NcclReductions reductions(inside_, factor);
    for (const DeviceSpan& buffer : buffers) reductions.prepare(buffer.type);
    const auto calls = [&] {
        for (const DeviceSpan& buffer : buffers)
            inside_.handle().call("ncclAllReduce", [&](nccl::Comm& comm) {
                return inside_.nccl().all_reduce(buffer.data,
                                                 buffer.data,
                                                 buffer.count,
                                                 nccl_type(buffer.type),
                                                 reductions.of(buffer.type),
                                                 comm,
                                                 inside_.stream());
            });
    };
    return issue("all-reduce", calls, before, std::move(keep));
}

NcclWork NcclCollectives::reduce_scatter(const DeviceSpan& buffer,
                                         double factor,
                                         GpuStream before,
                                         Keep keep) {
    NcclReductions reductions(inside_, factor);
    reductions.prepare(buffer.type);
    const Stripes stripes(buffer, inside_.bootstrap().size());
    const auto type = nccl_type(buffer.type);
    const auto op = reductions.of(buffer.type);
    const auto in_equal_parts = [&](nccl::Comm& comm) {
        return inside_.nccl().reduce_scatter(buffer.data,
                                             stripes.begin(inside_.bootstrap().rank()),
                                             stripes.of(0).size(),
                                             type,
                                             op,
                                             comm,
                                             inside_.stream());
    };
    const auto to_owner = [&](int owner, void* data, std::size_t count) {
        inside_.handle().call("ncclReduce", [&](nccl::Comm& comm) {
            return inside_.nccl().reduce(
                data, data, count, type, op, owner, comm, inside_.stream());
        });
    };
    const auto calls = [&] {
        if (stripes.are_equal())
            inside_.handle().call("ncclReduceScatter", in_equal_parts);
        else
            stripes.for_each(to_owner);
    };
    return issue("reduce-scatter", calls, before, std::move(keep));
}

NcclWork NcclCollectives::all_gather(const DeviceSpan& buffer, GpuStream before, Keep keep) {
    const Stripes stripes(buffer, inside_.bootstrap().size());
    const auto type = nccl_type(buffer.type);
    const auto in_equal_parts = [&](nccl::Comm& comm) {
        return inside_.nccl().all_gather(stripes.begin(inside_.bootstrap().rank()),
                                         buffer.data,
                                         stripes.of(0).size(),
                                         type,
                                         comm,
                                         inside_.stream());
    };
    const auto from_owner = [&](int owner, void* data, std::size_t count) {
        inside_.handle().call("ncclBroadcast", [&](nccl::Comm& comm) {
            return inside_.nccl().broadcast(data, data, count, type, owner, comm, inside_.stream());
        });
    };
    const auto calls = [&] {
        if (stripes.are_equal())
            inside_.handle().call("ncclAllGather", in_equal_parts);
        else
            stripes.for_each(from_owner);
    };
    return issue("all-gather", calls, before, std::move(keep));
}

NcclWork NcclCollectives::broadcast(const DeviceSpan& buffer,
                                    int root,
                                    GpuStream before,
                                    Keep keep) {
    const auto calls = [&] {
        inside_.handle().call("ncclBroadcast", [&](nccl::Comm& comm) {
            return inside_.nccl().broadcast(buffer.data,
                                            buffer.data,
                                            buffer.count,
                                            nccl_type(buffer.type),
                                            root,
                                            comm,
                                            inside_.stream());
        });
    };
    return issue("broadcast", calls, before, std::move(keep));
}

}  // namespace lockstep
