// SPDX-License-Identifier: Apache-2.0
// What one rank of the self-test does on the GPU.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/gpu_selection.hpp"

#include <string>

namespace lockstep {

/// Collective. Sums of several sizes and types, means, scattered and gathered stripes, each between
/// copies on a stream of the caller's, checked exactly. Says what was done; throws Error if wrong.
std::string check_sums(Bootstrap& bootstrap);

/// Collective. Every rank selects `gpu` by its PCI address and reads it back; several of them must
/// all be refused, with two named. Says which GPU, or what was refused.
std::string check_selection(Bootstrap& bootstrap, const PlannedGpu& gpu);

/// Collective. The last rank kills itself; the others must give up within the limits and say so.
std::string survive_a_killed_rank(Bootstrap& bootstrap);

}  // namespace lockstep
