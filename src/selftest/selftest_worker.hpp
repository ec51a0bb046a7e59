// SPDX-License-Identifier: Apache-2.0
// The work of one rank of the self-test with NCCL on the GPU.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/comm/gpu_selection.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// Collective. Known values of tensors of `counts` elements go through the exchange of training for
/// some steps, never waited for in between. Every sum must be exact: of whole numbers in the tree's
/// order and in NCCL's own, of 64-bit integers, and of gradients that have other bits in any other
/// order. Says what was done. Errors: E679 a wrong sum.
std::string check_sums(const std::shared_ptr<GpuRuntime>& runtime,
                       Bootstrap& bootstrap,
                       std::span<const std::size_t> counts);

/// Collective. Every rank selects `gpu` by its PCI address and reads it back; several of them must
/// all be refused, with two named. Says which GPU, or what was refused.
std::string check_selection(Bootstrap& bootstrap, const PlannedGpu& gpu);

/// Collective. The last rank kills itself; the others must give up within the limits and say so.
std::string survive_a_killed_rank(const std::shared_ptr<GpuRuntime>& runtime,
                                  Bootstrap& bootstrap,
                                  std::span<const std::size_t> counts);

}  // namespace lockstep
