// SPDX-License-Identifier: Apache-2.0
// The numeric contract of a run: threads and instruction set, the same on every rank.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"

#include <optional>

namespace lockstep {

/// Returns the highest level that `settings` permit: the requested one, or any. fp32 does not use
/// levels for 16-bit numbers by itself.
InstructionSet most_useful(const TrainSettings& settings);

/// Collective. Settles the instruction set: the one in `settings`, or the lowest among the ranks,
/// up to most_useful(). Sets it in oneDNN, MKL and ATen before their first use, once in a process,
/// because they read it once. From here on LibTorch may compute, in memory that the process keeps.
/// `mine`: this processor's level. Sets settings.instruction_set, and adds to its warnings. Errors:
/// E702 naming the ranks whose processor lacks it, E700 if ATen chose another, and those of
/// arithmetic.hpp.
void settle_arithmetic(const Communicator& ranks, InstructionSet mine, TrainSettings& settings);

}  // namespace lockstep
