// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of ranks, each with its own GPU, that is ready or has failed with an error.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/core/environment.hpp"

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
    failed,  ///< an error was seen; only abort may follow
    aborting,
    aborted,
    finalizing,
    finalized,
    destroyed,
};

/// As in messages: the enumerator's word.
std::string_view name_of(NcclState state);

/// Settings of a communicator.
struct NcclOptions {
    int device = 0;                      ///< as CUDA counts them in this process
    std::string name = "gradients";      ///< in messages
    double init_deadline_s = 120;        ///< for all of the start
    double collective_deadline_s = 600;  ///< for one collective, waiting for others included
    double abort_limit_s = 10;           ///< see GpuRuntime::abort_all()
    Environment environment;             ///< where NCCL_* is looked up
    std::string report;                  ///< the file that NCCL reports to, for messages; "": none
};

/// How long one step of the start took.
struct StartPhase {
    std::string name;    ///< of the step
    double seconds = 0;  ///< that it took
};

/// Owns one ncclComm_t and its stream. Used by one thread at a time, whose current CUDA device is
/// `options.device` (making one sets it for the thread that does). Any error aborts all
/// communicators of `runtime`, tells the other ranks, and is thrown; after that only destruction is
/// useful.
class NcclCommunicator {
  public:
    /// Collective. Agrees on GPUs, versions and settings, starts NCCL without ever blocking, and
    /// proves it by a small sum. Errors: E630 and E676 a rank did not come, E673 two ranks on one
    /// GPU, E674 versions differ, E675 NCCL_* settings differ, E677 NCCL refuses, E679 wrong sum,
    /// E682 another rank gave up. `bootstrap` must outlive this.
    NcclCommunicator(std::shared_ptr<GpuRuntime> runtime,
                     Bootstrap& bootstrap,
                     const NcclOptions& options);
    ~NcclCommunicator();  ///< close(), or an abort if an exception is under way; never throws
    NcclCommunicator(NcclCommunicator&&) noexcept;
    NcclCommunicator& operator=(NcclCommunicator&&) noexcept;

    /// Collective. Waits for what was issued, then finalizes and destroys, in that order.
    void close();

    int rank() const;         ///< from 0
    int size() const;         ///< ranks
    NcclState state() const;  ///< now; another thread's abort may change it at any time
    const std::vector<StartPhase>& start_phases() const;  ///< in order, for the log

    class Inside;  ///< what the other parts of this back end see
    Inside& inside() { return *inside_; }

  private:
    std::unique_ptr<Inside> inside_;
};

}  // namespace lockstep
