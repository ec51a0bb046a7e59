// SPDX-License-Identifier: Apache-2.0
// Single kernels on the first GPU against the CPU: the same bits or an error.
#pragma once

#include <string>

namespace lockstep {

/// Every step, both presets, both layouts, mixup and cutmix. Says what was done. Errors: E670 (no
/// GPU, or a library without transforms), E679 (other bits), E681.
std::string check_transforms();

/// Sums of squares over the whole range of floats, and with what is no number. Says what was done.
/// Errors: E670 (no GPU, or a library without the kernel), E679 (another sum), E681.
std::string check_norms();

}  // namespace lockstep
