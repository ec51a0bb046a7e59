// SPDX-License-Identifier: Apache-2.0
// Finds the GPU that the others wait for, if all hosts are in the same collective.
#pragma once

#include "lockstep/run/verdict.hpp"

#include "flight/scene.hpp"

namespace lockstep {

/// Returns Trouble::none if no rank reports its GPU. The speaker is not filled in.
Verdict gpu_verdict(const Scene& scene);

}  // namespace lockstep
