// SPDX-License-Identifier: Apache-2.0
// What a run needs of the process that computes it: whole teams of threads, numbers that round to
// nearest and keep what is tiny, and kernels that no variable of the environment has chosen.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Takes back what the environment says to LibTorch's libraries about kernels and precision;
/// returns a sentence for each variable that had a value. To be called before LibTorch computes.
/// Errors: E709 for one that was obeyed before this process could change it.
std::vector<std::string> forget_kernel_variables();

/// Cheap enough for every leaf. Errors: E706 if a parallel region does not get `threads` threads,
/// E708 if numbers are flushed to zero or rounded otherwise than to nearest.
void check_arithmetic(int threads);

}  // namespace lockstep
