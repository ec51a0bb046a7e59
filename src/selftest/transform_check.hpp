// SPDX-License-Identifier: Apache-2.0
// Transforms on the first GPU against the CPU's: the same bits or an error.
#pragma once

#include <string>

namespace lockstep {

/// Every step, both presets, both layouts, mixup and cutmix. Says what was done. Errors: E670 (no
/// GPU, or a library without transforms), E679 (other bits), E681.
std::string check_transforms();

}  // namespace lockstep
