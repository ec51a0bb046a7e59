// SPDX-License-Identifier: Apache-2.0
// The numeric contract of a run: threads and instruction set, the same on every rank.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"

namespace lockstep {

/// Cheap enough for every leaf. Errors: E706 if a parallel region does not get `threads` threads,
/// E708 if numbers are flushed to zero or rounded otherwise than to nearest.
void check_arithmetic(int threads);

/// The highest level that `settings` let a run compute with: the one they want, or any; levels for
/// numbers of 16 bits are none that fp32 takes by itself.
InstructionSet most_useful(const TrainSettings& settings);

/// Collective. Settles the instruction set to compute with: what `settings` want, or the least
/// among the ranks, up to most_useful(). Tells oneDNN, MKL and ATen before their first use, once in
/// a process: they read it once. From here on LibTorch may compute, in memory that the process
/// keeps. `mine`: this processor's level. Sets settings.instruction_set. Takes back what the
/// environment says to LibTorch's libraries about kernels and precision, with a warning for each
/// variable. Errors: E702 naming the ranks whose processor lacks it, E700 if ATen chose another,
/// E709 for a variable that was obeyed before this process could change it.
void settle_arithmetic(const Communicator& ranks, InstructionSet mine, TrainSettings& settings);

}  // namespace lockstep
