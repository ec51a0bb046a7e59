// SPDX-License-Identifier: Apache-2.0
// Requirements of a run on its process: complete teams of threads, rounding to nearest without
// flushing to zero, and kernels that no environment variable has chosen.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Resets the environment variables by which LibTorch's libraries choose kernels and precision;
/// returns a sentence for each that had a value. Call it before LibTorch computes. Errors: E709 for
/// one that had taken effect before this process could change it.
std::vector<std::string> forget_kernel_variables();

/// Checks the arithmetic; cheap enough for every leaf. Errors: E706 if a parallel region does not
/// get `threads` threads, E708 if numbers are flushed to zero or not rounded to nearest.
void check_arithmetic(int threads);

}  // namespace lockstep
