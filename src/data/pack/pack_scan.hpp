// SPDX-License-Identifier: Apache-2.0
// First look at everything that is to be packed: statistics, and whether the labels make sense.
#pragma once

#include "lockstep/data/pack.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// The source's fields with mean and deviation of each channel (u8 fields of layout CHW) and the
/// count of each class (scalar i64 fields). Errors: E210, E106.
std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report);

}  // namespace lockstep
