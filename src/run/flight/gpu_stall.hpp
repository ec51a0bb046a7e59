// SPDX-License-Identifier: Apache-2.0
// Which GPU keeps the others waiting, where all hosts are in the same collective.
#pragma once

#include "lockstep/run/verdict.hpp"

#include "flight/scene.hpp"

namespace lockstep {

/// Trouble::none where no rank says anything of its GPU. Not filled in: the speaker.
Verdict gpu_verdict(const Scene& scene);

}  // namespace lockstep
