// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives over buffers in GPU memory, ordered by streams: a sibling of Collectives, whose
/// calls end before they return.
#pragma once

#include "lockstep/comm/data_type.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace lockstep {

struct NcclPending;

/// Elements in GPU memory, aligned to their size.
struct DeviceSpan {
    void* data = nullptr;               ///< borrowed, on the GPU
    std::size_t count = 0;              ///< elements
    DataType type = DataType::float32;  ///< of the elements
};

/// A collective that was issued. Dropping it neither waits nor frees a buffer too early.
class NcclWork {
  public:
    /// Made by NcclCollectives alone.
    NcclWork(NcclCommunicator::Inside& inside, std::shared_ptr<const NcclPending> pending)
        : inside_(&inside), pending_(std::move(pending)) {}

    /// Never waits. Errors: as wait().
    bool is_done() const;

    /// Until the GPU is done with it. Errors: E677 NCCL failed, E678 it took too long, E680 another
    /// thread aborted, E682 another rank gave up. Each aborts all communicators.
    void wait() const;

    /// The GPU's work that comes to `stream` from now on waits for it; this thread does not.
    void let_wait(GpuStream stream) const;

  private:
    NcclCommunicator::Inside* inside_;
    std::shared_ptr<const NcclPending> pending_;
};

/// In place, one thread, the same calls in the same order on every rank. A call comes after all
/// that `before` (the stream that fills the buffer, autograd's) holds when it is made. `keep` owns
/// the buffers, or is empty where they outlive the work anyway. The sum's order is NCCL's own: it
/// is the same on all ranks, but not for all numbers of ranks.
class NcclCollectives {
  public:
    /// `communicator` outlives this and all its work.
    explicit NcclCollectives(NcclCommunicator& communicator);

    /// Something that keeps buffers alive until the GPU is done with them.
    using Keep = std::shared_ptr<const void>;

    /// Collective. Each buffer becomes its sum over ranks, times `factor` (1.0 / size for the mean;
    /// floating-point types only), in one launch.
    NcclWork all_reduce(std::span<const DeviceSpan> buffers,
                        double factor,
                        GpuStream before,
                        Keep keep = {});

    /// Collective. Afterwards this rank's stripe_of() the buffer holds the sum times `factor`; the
    /// rest is unspecified. Fastest where all stripes are of one size.
    NcclWork reduce_scatter(const DeviceSpan& buffer,
                            double factor,
                            GpuStream before,
                            Keep keep = {});

    /// Collective. Afterwards every rank has every rank's stripe.
    NcclWork all_gather(const DeviceSpan& buffer, GpuStream before, Keep keep = {});

    /// Collective.
    NcclWork broadcast(const DeviceSpan& buffer, int root, GpuStream before, Keep keep = {});

  private:
    NcclWork issue(const char* what,
                   const std::function<void()>& calls,
                   GpuStream before,
                   Keep keep);

    NcclCommunicator::Inside& inside_;
};

}  // namespace lockstep
