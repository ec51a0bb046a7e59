// SPDX-License-Identifier: Apache-2.0
/// @file
/// A deadline for the first contact between ranks.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/foreign_end.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace lockstep {

/// Time limits of the first contact.
struct StartLimits {
    double init_s = 300;    ///< limit of MPI_Init, in which ranks of a large job load libraries
    double contact_s = 45;  ///< limit from then on until all ranks have arrived
};

/// Returns the limits; LOCKSTEP_START_TIMEOUT (seconds) replaces each if it is set. Errors: E102.
StartLimits start_limits(const Environment& environment);

/// Returns the error for an MPI_Init that ended this process with exit code `status`, as Open MPI's
/// does on failure: E632 if a folder of MPI's files on this host is full, else E604.
Error init_failed(int status, const Environment& environment);

/// During its lifetime, this rank waits for the others for the first time. Over a network without a
/// route Open MPI would wait for ever. After the limit the rank reports which addresses of mpirun's
/// host answer and which mpirun line works (E692), and ends itself; its launcher then ends the
/// rest. Make it before MPI_Init; a process that MPI_Init ends reports its error too. A single rank
/// has no limit.
class StartWatch {
  public:
    /// Begins to wait.
    explicit StartWatch(const StartLimits& limits);
    ~StartWatch();
    StartWatch& operator=(StartWatch&&) = delete;

    /// Notes that MPI_Init has returned on this rank, and therefore soon on all.
    void note_init();

  private:
    void watch();
    void tell(bool& fact);

    const StartLimits limits_;
    std::optional<ForeignEnd> init_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_init_ = false, is_over_ = false;
    std::thread thread_;  ///< not for a single rank
};

}  // namespace lockstep
