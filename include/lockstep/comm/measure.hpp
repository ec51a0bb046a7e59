// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the speed of training's exchange, compared with other all-reduces, and checks its sums.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What sums floats over all ranks. All but the first are there to be compared with it.
enum class SumMethod {
    lockstep,            ///< one bucket through the Exchange of training
    ring,                ///< textbook, over MPI point-to-point
    recursive_doubling,  ///< likewise
    tree,                ///< likewise: binomial reduce, then broadcast
    parameter_server,    ///< likewise: synchronous, every rank also serves one part
    open_mpi,            ///< MPI_Allreduce
};

/// In the order of the enumeration.
std::span<const SumMethod> all_sum_methods();

/// "lockstep", or as `bench comm --beside` spells it.
std::string_view name_of(SumMethod method);

/// What is measured and how often.
struct MeasurePlan {
    std::vector<std::size_t> sizes;  ///< bytes of one rank's floats, ascending
    std::vector<SumMethod> methods = {SumMethod::lockstep, SumMethod::open_mpi};  ///< take turns
    int iterations = 0;      ///< sums in one timed block; 0: as many as fill block_s
    int warmup = 5;          ///< untimed sums before each size
    int rounds = 5;          ///< blocks of each method at each size; methods alternate
    int checks = 1;          ///< sums of each size whose result is compared; 0: none
    double block_s = 0.005;  ///< length of a timed block, where `iterations` is 0
    std::function<void(std::size_t bytes)> on_size;  ///< before each; may be empty
};

/// One method at one size. Seconds are of one sum, averaged over a block, of the slowest rank.
struct Measurement {
    SumMethod method = SumMethod::open_mpi;  ///< that was measured
    std::size_t bytes = 0;                   ///< of one rank's floats
    double best_s = 0;                       ///< of the fastest round
    double median_s = 0;                     ///< over rounds
    std::optional<std::uint64_t> wrong;      ///< elements on all ranks that were not the exact sum
};

/// How fast all ranks together add floats of their own, each by itself: what no sum over shared
/// memory can beat.
struct MemoryLimit {
    std::size_t bytes = 0;   ///< memory of one rank that is touched
    double bytes_per_s = 0;  ///< of all ranks together
};

/// What measure() found.
struct Measurements {
    std::string transport;            ///< Exchange::name(); "" if it was not measured
    std::vector<Measurement> rows;    ///< by size, then method
    std::vector<MemoryLimit> limits;  ///< where the exchange went over shared memory alone
};

/// Collective. Errors: as make_exchange().
Measurements measure(const Communicator& ranks, const MeasurePlan& plan);

/// Collective over groups that measured the same plan at the same time: the slowest time and all
/// wrong elements.
Measurements worst_of(const Communicator& groups, const Measurements& mine);

/// nccl-tests' figures in GB/s (10^9): bytes over time; and what one rank must send and receive of
/// them at least, 2(P-1)/P: comparable between numbers of ranks and with the link's speed.
double algorithm_gb_per_s(std::size_t bytes, double seconds);

/// The second of these figures.
double bus_gb_per_s(std::size_t bytes, double seconds, int ranks);

/// Bytes that an exchange over shared memory moves at least: it reads each of P buffers once and
/// writes one sum.
double shared_memory_bytes(std::size_t bytes, int ranks);

/// Share of the memory limit that an exchange over shared memory reaches.
double fraction_of(const MemoryLimit& limit, double seconds, int ranks);

/// min, min * factor, ... up to max, rounded down to multiples of 8 bytes and without repetition.
std::vector<std::size_t> size_steps(std::size_t min_bytes, std::size_t max_bytes, double factor);

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
