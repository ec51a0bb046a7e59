// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the links between ranks: the state of MPI, clock offsets, and the speed of each pair.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Returns MPI's thread level: 0 (single) to 3 (multiple); 3 outside a session.
int mpi_thread_level();

/// Collective. Returns this rank's system clock minus rank 0's, in seconds; 0 on rank 0. It uses
/// the middle of the shortest of some round trips (Cristian 1989), so its error is at most half of
/// that trip.
double measure_clock_offset_s(const Communicator& ranks);

/// The speed to one other rank: bytes per second sent while as many came back.
struct LinkSpeed {
    int peer = 0;            ///< its rank
    double bytes_per_s = 0;  ///< one way
};

/// Collective. Every rank exchanges `bytes` with every other, one pair per rank at a time; the best
/// of three counts. Results are by round of the tournament; empty for one rank.
std::vector<LinkSpeed> measure_link_speeds(const Communicator& ranks, std::size_t bytes);

/// Returns the rank that `rank` meets in `round` (0 to rounds - 1) if every pair meets once: the
/// circle method. -1: it rests. There are ranks - 1 rounds, or `ranks` of them if that is odd.
int tournament_peer(int rank, int round, int ranks);

/// Returns the number of rounds of tournament_peer().
int tournament_rounds(int ranks);

}  // namespace lockstep
