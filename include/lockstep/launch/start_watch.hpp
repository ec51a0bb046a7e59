// SPDX-License-Identifier: Apache-2.0
/// @file
/// A deadline for the first contact between ranks.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/foreign_end.hpp"

#include <memory>
#include <optional>

namespace lockstep {

/// How long the first contact may take.
struct StartLimits {
    double init_s = 300;    ///< MPI_Init: the ranks of a large job load their libraries meanwhile
    double contact_s = 45;  ///< from then on: all have arrived
};

/// The limits, with LOCKSTEP_START_TIMEOUT (seconds) for each of them if it is set. Errors:
/// E102.
StartLimits start_limits(const Environment& environment);

/// What it means that MPI_Init ended this process with exit code `status`, as Open MPI's does where
/// it fails: E632 if a folder of MPI's files on this host has no room, else E604.
Error init_failed(int status, const Environment& environment);

/// While it lives, this rank waits for the others for the first time. Over a network that leads
/// nowhere Open MPI does so for ever: after the limit the rank says which addresses of mpirun's
/// host answer and which mpirun line works (E692), and ends itself, whereupon its launcher ends the
/// rest. Made before MPI_Init; a process that this ends says so, too. No limit for a rank that is
/// alone.
class StartWatch {
  public:
    /// Begins to wait.
    explicit StartWatch(const StartLimits& limits);
    ~StartWatch();
    StartWatch(const StartWatch&) = delete;
    StartWatch& operator=(const StartWatch&) = delete;

    /// MPI_Init has returned, on this rank and therefore soon on all.
    void note_init();

  private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
    std::optional<ForeignEnd> init_;
};

}  // namespace lockstep
