// SPDX-License-Identifier: Apache-2.0
// What a process does itself, and what it has MPI move: counted between the program and MPI, by
// MPI's profiling interface (MPI 3.1, chapter 14). A rank that waits spins inside MPI; on cores
// that many ranks share, only what it does outside and the bytes of its calls are its own.
#pragma once

#include <cstdint>

namespace lockstep {

/// Of the calling thread, since MPI was set up. Bytes are those that calls gave to MPI or took from
/// it: of a gather on its root, of all ranks.
struct MpiTally {
    double own_s = 0;         ///< CPU time outside MPI
    double in_mpi_s = 0;      ///< CPU time inside, waiting included
    std::uint64_t bytes = 0;  ///< all in all
};

MpiTally mpi_tally();

}  // namespace lockstep
