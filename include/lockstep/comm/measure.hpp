// SPDX-License-Identifier: Apache-2.0
/// @file
/// How fast the all-reduce algorithms are here, side by side, and whether their sums are exact.
#pragma once

#include "lockstep/comm/collectives.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Where the summed buffers lie: in memory that the algorithm lends (a window where it has one), or
/// in each process's own.
enum class BufferPlace { lent, own };

/// What is measured and how often.
struct MeasurePlan {
    std::vector<std::size_t> sizes;                     ///< bytes of one rank's buffer, ascending
    std::vector<DataType> types = {DataType::float32};  ///< of the elements
    std::vector<Algorithm> algorithms;                  ///< that take turns
    BufferPlace place = BufferPlace::lent;              ///< of what is summed
    int iterations = 0;      ///< all-reduces in one timed block; 0: as many as fill block_s
    int warmup = 5;          ///< untimed ones before each size
    int rounds = 5;          ///< blocks of each algorithm at each size; algorithms alternate
    int checks = 1;          ///< all-reduces of each size whose result is compared; 0: none
    double block_s = 0.005;  ///< length of a timed block, where `iterations` is 0
    std::function<void(std::size_t bytes, DataType type)> on_size;  ///< before each; may be empty
};

/// One algorithm at one size. Seconds are of one all-reduce, averaged over a block, of the slowest
/// rank.
struct Measurement {
    Algorithm algorithm = Algorithm::open_mpi;  ///< that was measured
    DataType type = DataType::float32;          ///< of the elements
    std::size_t bytes = 0;                      ///< of one rank's buffer
    std::size_t count = 0;                      ///< elements in it
    double best_s = 0;                          ///< of the fastest round
    double median_s = 0;                        ///< over rounds
    std::optional<std::uint64_t> wrong;  ///< elements on all ranks that were not the exact sum
};

/// How fast all ranks together sum buffers of their own, each by itself: what no all-reduce over
/// shared memory can beat. `bytes`: memory of one rank that is touched.
struct MemoryLimit {
    std::size_t bytes = 0;   ///< memory of one rank that is touched
    double bytes_per_s = 0;  ///< of all ranks together
};

/// What measure() found.
struct Measurements {
    std::vector<Measurement> rows;    ///< by type, then size, then algorithm
    std::vector<MemoryLimit> limits;  ///< of float32, where shared memory was measured
};

/// Collective. Errors: E631 and E632 of make_all_reduce() and lend().
Measurements measure(const Communicator& ranks, const MeasurePlan& plan);

/// Collective over groups that measured the same plan at the same time: the slowest time and all
/// wrong elements.
Measurements worst_of(const Communicator& groups, const Measurements& mine);

/// nccl-tests' figures in GB/s (10^9): bytes over time; and what one rank must send and receive of
/// them at least, 2(P-1)/P: comparable between numbers of ranks and with the link's speed.
double algorithm_gb_per_s(std::size_t bytes, double seconds);

/// The second of these figures.
double bus_gb_per_s(std::size_t bytes, double seconds, int ranks);

/// Share of the memory limit that an all-reduce over shared memory reaches: it reads and writes
/// each of P buffers once, 2 P n bytes.
double fraction_of(const MemoryLimit& limit, double seconds, int ranks);

/// min, min * factor, ... up to max, rounded down to whole elements of 8 bytes and without
/// repetition.
std::vector<std::size_t> size_steps(std::size_t min_bytes, std::size_t max_bytes, double factor);

}  // namespace lockstep
