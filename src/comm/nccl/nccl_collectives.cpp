// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_collectives.hpp"

#include "nccl/nccl_inside.hpp"
#include "nccl/nccl_reduction.hpp"
#include "nccl/nccl_stripes.hpp"

#include <utility>

namespace lockstep {
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
    inside_->guarded([&] { lockstep::let_wait(*inside_->runtime(), stream, pending_->end); });
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
        record(*inside_.runtime(), pending->end, inside_.stream());
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
            sum_everywhere(inside_, buffer, reductions.of(buffer.type));
    };
    return issue("all-reduce", calls, before, std::move(keep));
}

NcclWork NcclCollectives::reduce_scatter(const DeviceSpan& buffer,
                                         double factor,
                                         GpuStream before,
                                         Keep keep) {
    NcclReductions reductions(inside_, factor);
    reductions.prepare(buffer.type);
    const auto calls = [&] { scatter_sum(inside_, buffer, reductions.of(buffer.type)); };
    return issue("reduce-scatter", calls, before, std::move(keep));
}

NcclWork NcclCollectives::all_gather(const DeviceSpan& buffer, GpuStream before, Keep keep) {
    const auto calls = [&] { gather_stripes(inside_, buffer); };
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
