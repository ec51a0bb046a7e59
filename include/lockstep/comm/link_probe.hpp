// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the links between ranks: the state of MPI, clock offsets, and the speed of each pair.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// What this MPI gives: 0 (single) to 3 (multiple), in MPI's order; 3 outside a session.
int mpi_thread_level();

/// Collective. This rank's system clock minus rank 0's, in seconds: the middle of the shortest of
/// some round trips (Cristian 1989), so wrong by half of that at most. 0 on rank 0.
double measure_clock_offset_s(const Communicator& ranks);

/// One other rank, and the bytes a second that went to it while as many came back.
struct LinkSpeed {
    int peer = 0;            ///< its rank
    double bytes_per_s = 0;  ///< one way
};

/// Collective. Every rank exchanges `bytes` with every other, one pair a rank at a time; the best
/// of three. By round of the tournament; empty for one rank.
std::vector<LinkSpeed> measure_link_speeds(const Communicator& ranks, std::size_t bytes);

/// The rank that `rank` meets in `round` (0 to rounds - 1) if every pair meets once: the circle
/// method. -1: it rests. There are ranks - 1 rounds, or `ranks` of them if that is odd.
int tournament_peer(int rank, int round, int ranks);

/// How many rounds tournament_peer() speaks of.
int tournament_rounds(int ranks);

}  // namespace lockstep
