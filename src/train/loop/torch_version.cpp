// SPDX-License-Identifier: Apache-2.0
// By itself, for it takes nothing of LibTorch into a program.
#include "lockstep/train/train.hpp"

#include <torch/version.h>

namespace lockstep {

std::string torch_version_text() {
    return TORCH_VERSION;
}

}  // namespace lockstep
