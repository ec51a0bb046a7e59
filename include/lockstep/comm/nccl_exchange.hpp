// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange of gradients between GPUs, with the same bits as the exchanges between CPUs.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep {

/// An Exchange whose memory() is a GPU's. Its calls order the GPU's work and do not wait for it.
/// Results of arrive(), reduce() and publish() are available to work that is enqueued on the
/// caller's stream afterwards. The host runs at most one step ahead.
class GpuExchange : public Exchange {
  public:
    /// Waits until the GPU has done all work of this and of the caller's stream so far; then the
    /// host may read, and knows that no rank was stuck. Call it before anything that waits inside
    /// CUDA, which would never return if a rank is stuck. Errors: E677 NCCL failed, E678 it took
    /// too long, E680 another thread aborted, E682 another rank gave up. Each aborts all
    /// communicators.
    virtual void wait() = 0;

    /// Collective, between the last reduce() and publish(). Replaces each of `count` integers in
    /// GPU memory by its sum over all ranks, for work that is enqueued on the caller's stream
    /// afterwards. The integers must stay in place as long as the communicator.
    virtual void add_up(std::int64_t* numbers, std::size_t count) = 0;
};

/// Collective. Makes an exchange that sums in the order of `plan`'s tree, or with Summation::plain
/// in NCCL's own order. `caller` is the stream that fills slots, reads sums and values, and writes
/// own stripes of values. `caller` and `communicator`, which is for exclusive use, must outlive the
/// exchange; work of `caller` that uses its memory must not. One thread at a time, whose device is
/// the communicator's. All calls throw as wait() does, and E681 if CUDA fails. Errors: E662 ranks
/// with another layout or plan, E681 no memory on a GPU.
std::unique_ptr<GpuExchange> make_nccl_exchange(NcclCommunicator& communicator,
                                                const FlatLayout& layout,
                                                const TreePlan& plan,
                                                GpuStream caller);

}  // namespace lockstep
