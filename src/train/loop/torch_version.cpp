// SPDX-License-Identifier: Apache-2.0
// A separate file, because it brings nothing of LibTorch into a program.
#include "lockstep/train/train.hpp"

#include <torch/version.h>

namespace lockstep {

std::string torch_version_text() {
    return TORCH_VERSION;
}

}  // namespace lockstep
