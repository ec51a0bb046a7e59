// SPDX-License-Identifier: Apache-2.0
// The checks of the self-test. Single kernels on the first GPU against the CPU: the same bits or an
// error. The work of one rank with NCCL on the GPU.
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

/// Every step, both presets, both layouts, mixup and cutmix. Says what was done. Errors: E670 (no
/// GPU, or a library without transforms), E679 (other bits), E681.
std::string check_transforms();

/// Sums of squares over the whole range of floats, and with what is no number. Says what was done.
/// Errors: E670 (no GPU, or a library without the kernel), E679 (another sum), E681.
std::string check_norms();

}  // namespace lockstep
