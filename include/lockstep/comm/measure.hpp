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

/// A method that sums floats over all ranks. The first is compared with all others.
enum class SumMethod {
    lockstep,            ///< one bucket through the Exchange of training
    ring,                ///< textbook algorithm over MPI point-to-point
    recursive_doubling,  ///< textbook algorithm
    tree,                ///< textbook algorithm: binomial reduce, then broadcast
    parameter_server,    ///< textbook algorithm: synchronous, every rank also serves one part
    open_mpi,            ///< MPI_Allreduce
};

/// Returns all methods in the order of the enumeration.
std::span<const SumMethod> all_sum_methods();

/// Returns "lockstep", or the name for `bench comm --beside`.
std::string_view name_of(SumMethod method);

/// The plan of a measurement.
struct MeasurePlan {
    std::vector<std::size_t> sizes;  ///< bytes of one rank's floats, ascending
    std::vector<SumMethod> methods = {SumMethod::lockstep,
                                      SumMethod::open_mpi};  ///< they take turns
    int iterations = 0;      ///< sums in one timed block; 0: as many as fill block_s
    int warmup = 5;          ///< untimed sums before each size
    int rounds = 5;          ///< blocks of each method at each size; methods alternate
    int checks = 1;          ///< sums of each size whose result is compared; 0: none
    double block_s = 0.005;  ///< length of a timed block, where `iterations` is 0
    std::function<void(std::size_t bytes)> on_size;  ///< called before each size; may be empty
};

/// One method at one size. Times are seconds of one sum, of the slowest rank, averaged over a
/// block.
struct Measurement {
    SumMethod method = SumMethod::open_mpi;  ///< the method measured
    std::size_t bytes = 0;                   ///< size of one rank's floats
    double best_s = 0;                       ///< time of the fastest round
    double median_s = 0;                     ///< median over rounds
    std::optional<std::uint64_t>
        wrong;  ///< number of elements on all ranks that differed from the exact sum
};

/// The speed at which all ranks together add floats of their own, each by itself: an upper bound
/// for every sum over shared memory.
struct MemoryLimit {
    std::size_t bytes = 0;   ///< memory of one rank that is read or written
    double bytes_per_s = 0;  ///< speed of all ranks together
};

/// Results of measure().
struct Measurements {
    std::string transport;            ///< Exchange::name(); "" if it was not measured
    std::vector<Measurement> rows;    ///< sorted by size, then method
    std::vector<MemoryLimit> limits;  ///< set if the exchange used only shared memory
};

/// Collective. Errors: as make_exchange().
Measurements measure(const Communicator& ranks, const MeasurePlan& plan);

/// Collective over groups that measured the same plan at the same time. Returns the slowest time
/// and all wrong elements.
Measurements worst_of(const Communicator& groups, const Measurements& mine);

/// Returns nccl-tests' algorithm bandwidth in GB/s (10^9): bytes over time.
double algorithm_gb_per_s(std::size_t bytes, double seconds);

/// Returns nccl-tests' bus bandwidth: the algorithm bandwidth times 2(P-1)/P, the share that one
/// rank must send and receive at least. It is comparable between numbers of ranks and with the
/// link's speed.
double bus_gb_per_s(std::size_t bytes, double seconds, int ranks);

/// Returns the bytes that an exchange over shared memory moves at least: it reads each of P buffers
/// once and writes one sum.
double shared_memory_bytes(std::size_t bytes, int ranks);

/// Returns the share of the memory limit that an exchange over shared memory reaches.
double fraction_of(const MemoryLimit& limit, double seconds, int ranks);

/// Returns min, min * factor, ... up to max, rounded down to multiples of 8 bytes, each once.
std::vector<std::size_t> size_steps(std::size_t min_bytes, std::size_t max_bytes, double factor);

/// Returns MPI's thread level: 0 (single) to 3 (multiple); 3 outside a session.
int mpi_thread_level();

/// The offset of this node's clock from rank 0's.
struct ClockOffset {
    double ahead_s = 0;  ///< its time minus that of rank 0 at the same moment
    double error_s = 0;  ///< the true offset is within `ahead_s` +- `error_s`
};

/// Collective over `ranks`; `node` are those that share a clock with this one. The first rank of
/// each node asks rank 0 for its time a few times and keeps the quickest answer (Cristian,
/// "Probabilistic clock synchronization", 1989). Rank 0 read its clock between question and answer,
/// so half of that time bounds the error. Rank 0 serves one node after the other: well below a
/// millisecond each. `clock`: seconds, the same kind on every rank.
ClockOffset measure_clock_offset(const Communicator& ranks,
                                 const Communicator& node,
                                 const std::function<double()>& clock);

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
