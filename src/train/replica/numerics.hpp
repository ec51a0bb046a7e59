// SPDX-License-Identifier: Apache-2.0
// The numeric contract of a run: threads and instruction set, the same on every rank.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/settings.hpp"

#include <optional>

namespace lockstep {

/// The highest level that `settings` let a run compute with: the one they want, or any; levels for
/// numbers of 16 bits are none that fp32 takes by itself.
InstructionSet most_useful(const TrainSettings& settings);

/// Collective. The instruction set to compute with: what `settings` want, or the least among the
/// ranks, up to most_useful(). Errors: E702 naming the ranks whose processor lacks it.
InstructionSet agree_instruction_set(const Communicator& ranks,
                                     InstructionSet mine,
                                     const TrainSettings& settings);

/// Tells oneDNN, MKL and ATen before their first use. Only once in a process: they read it once.
void set_instruction_set(InstructionSet level);

/// Threads that one operator may use, and deterministic algorithms only. Errors: E700 if ATen
/// chose another instruction set than set_instruction_set() said.
void set_compute_threads(int threads, InstructionSet level);

/// Collective. All of this; from here on LibTorch may compute, in memory that the process keeps.
/// `mine`: this processor's level. Sets settings.instruction_set, and adds to its warnings. Errors:
/// those above, and those of arithmetic.hpp.
void settle_arithmetic(const Communicator& ranks, InstructionSet mine, TrainSettings& settings);

}  // namespace lockstep
