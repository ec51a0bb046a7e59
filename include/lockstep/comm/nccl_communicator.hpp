// SPDX-License-Identifier: Apache-2.0
/// @file
/// NCCL's communicator as training uses it, and the exchange of gradients between GPUs, with the
/// bits of the exchanges between CPUs.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/core/environment.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The state of a communicator.
enum class NcclState {
    unset,
    initializing,
    ready,
    failed,  ///< an error occurred; only abort may follow
    aborting,
    aborted,
    finalizing,
    finalized,
    destroyed,
};

/// Returns the enumerator's name, as in messages.
std::string_view name_of(NcclState state);

/// Settings of a communicator.
struct NcclOptions {
    int device = 0;                      ///< CUDA's number of the device in this process
    std::string name = "gradients";      ///< name in messages
    double init_deadline_s = 120;        ///< limit of the whole start
    double collective_deadline_s = 600;  ///< limit of one collective, including waits for others
    double abort_limit_s = 10;           ///< see GpuRuntime::abort_all()
    Environment environment;             ///< environment with NCCL_* variables
    std::string report;                  ///< file of NCCL's report, for messages; "": none
};

/// The duration of one step of the start.
struct StartPhase {
    std::string name;    ///< name of the step
    double seconds = 0;  ///< its duration
};

/// Owns one ncclComm_t and its stream. Used by one thread at a time, whose current CUDA device must
/// be `options.device`; the constructor sets it for its thread. Any error aborts all communicators
/// of `runtime`, is sent to the other ranks, and is thrown; after that the object may only be
/// destroyed.
class NcclCommunicator {
  public:
    /// Collective. Agrees on GPUs, versions and settings, starts NCCL without ever blocking, and
    /// tests it by a small sum. Errors: E630 and E676 a rank did not come, E673 two ranks on one
    /// GPU, E674 versions differ, E675 NCCL_* settings differ, E677 NCCL refuses, E679 wrong sum,
    /// E682 another rank gave up. `bootstrap` must outlive this.
    NcclCommunicator(std::shared_ptr<GpuRuntime> runtime,
                     Bootstrap& bootstrap,
                     const NcclOptions& options);
    ~NcclCommunicator();  ///< close(), or an abort if an exception is active; never throws
    NcclCommunicator(NcclCommunicator&&) noexcept;
    NcclCommunicator& operator=(NcclCommunicator&&) noexcept;

    /// Collective. Waits for all issued work, then finalizes and destroys, in that order.
    void close();

    int rank() const;         ///< from 0
    int size() const;         ///< number of ranks
    NcclState state() const;  ///< another thread's abort may change it at any time
    const std::vector<StartPhase>& start_phases() const;  ///< in order, for the log

    class Inside;  ///< interface for the other parts of this back end
    Inside& inside() { return *inside_; }

  private:
    std::unique_ptr<Inside> inside_;
};

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
