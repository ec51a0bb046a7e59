// SPDX-License-Identifier: Apache-2.0
// What the environment asks of the simulation: delays and faults. See `environment`.
#pragma once

#include "simcuda/gpus.hpp"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

namespace simcuda {

inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

/// Of this rank. Counts begin with 1.
struct Settings {
    int rank = 0;
    std::uint64_t seed = 1;
    std::uint64_t delay_us = 0;  ///< the longest
    std::uint64_t memory = usual_memory;
    int nccl_version = 22809;
    int capability = 9;
    std::string waits;                                     ///< prefix of files
    std::uint64_t kills_in = never;                        ///< a group of NCCL's
    std::uint64_t hangs_in = never;                        ///< likewise
    std::uint64_t stalls_in = never;                       ///< a sum in the tree
    std::uint64_t lost_after = never;                      ///< calls of CUDA
    std::uint64_t refuses = never;                         ///< an operator of a recording
    std::uint64_t no_workspace = never;                    ///< a convolution
    std::uint64_t wide_norm = never;                       ///< channels of a batch norm
    std::uint64_t groups = never;                          ///< of a convolution
    std::uint64_t drops_wait = never, drops_each = never;  ///< stream_wait_event: first, and period
};

/// As they were read last; at first when the library is loaded.
Settings settings();

/// Reads the environment again and counts anew.
void read_settings();

/// For tests: sets these variables for this rank, by their names without "SIMCUDA_", and none of
/// the others that tests set.
inline void simulate(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"DELAY_US", "SEED", "MEMORY", "DROP_WAIT", "HANG", "STALL", "LOST", "NCCL_VERSION"})
        ::unsetenv((std::string("SIMCUDA_") + name).c_str());
    for (const auto& [name, value] : variables)
        ::setenv(("SIMCUDA_" + name).c_str(), value.c_str(), 1);
    read_settings();
}

/// Sleeps as long as the seed has it for a piece of work.
void be_late(std::uint64_t stream, std::uint64_t number);

/// 0, or the cudaError_t of a GPU that is lost. Counts a call.
int fault_of_call();

/// The same without counting: for calls that are made until something has happened.
int fault_of_poll();

/// Counts a call in which CUDA lets the host wait for a GPU.
void note_wait_of_host();

/// How many there were.
std::uint64_t waits_of_host();

/// Counts an operator, kernel or copy that the host starts.
void note_launch();

/// What is started while it lives counts as one.
class OneLaunch {
  public:
    OneLaunch();
    ~OneLaunch();
    OneLaunch(const OneLaunch&) = delete;
    OneLaunch& operator=(const OneLaunch&) = delete;

  private:
    std::uint64_t before_;
};

/// Counts a sum in the tree.
bool is_stalled_sum();

/// Counts a wait for an event.
bool is_dropped_wait();

/// Counts an operator of a recording.
bool is_refused_operator();

/// Counts a convolution. Returns how many have taken another kernel since one lacked memory for its
/// workspace.
std::uint64_t other_kernels();

}  // namespace simcuda
