// SPDX-License-Identifier: Apache-2.0
// The variables with which a program finds the GPUs of tests/simcuda.
#pragma once

#include "program.hpp"

#include <string>

namespace lockstep::test {

/// As tests/simcuda/environment has them; `more` goes before.
inline Variables with_gpus(const Variables& more = {}) {
    const std::string folder = LOCKSTEP_SIMCUDA, library = folder + "/libsimcuda.so";
    Variables all = more;
    all.insert({{"LD_LIBRARY_PATH", folder},
                {"LOCKSTEP_CUDA_LIB", library},
                {"LOCKSTEP_NCCL_LIB", library},
                {"LOCKSTEP_TORCH_CUDA_LIB", library}});
    return all;
}

}  // namespace lockstep::test
