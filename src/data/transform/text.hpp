// SPDX-License-Identifier: Apache-2.0
// Steps of a pipeline as text.
#pragma once

#include "lockstep/data/transform.hpp"

#include <string>

namespace lockstep {

inline constexpr int most_side = 8192;  ///< of an image or a crop

/// "crop 32 pad 4", every default written out.
std::string text_of(const TransformOp& op);

}  // namespace lockstep
