// SPDX-License-Identifier: Apache-2.0
// First look at everything that is to be packed: statistics, and whether the labels make sense.
#pragma once

#include "lockstep/data/pack.hpp"
#include "lockstep/data/row_source.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Collective. The source's fields with the mean and deviation of each channel (u8 and real fields
/// of layout CHW) or feature (real fields of one dimension or none; not labels), and the count of
/// each class (labels and other scalar i64 fields, masks, tokens); a field that has statistics
/// already keeps them. The result depends neither on options.team nor on options.threads: whole
/// numbers are summed exactly, real ones in a fixed number of parts whose sums are added in a fixed
/// order. Errors: E210.
std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report);

}  // namespace lockstep
