// SPDX-License-Identifier: Apache-2.0
// The first pass over all that is to be packed: statistics, and a check of the labels.
#pragma once

#include "lockstep/data/pack.hpp"

#include <vector>

namespace lockstep {

/// Collective. Returns the source's fields with the mean and deviation of each channel (u8 and real
/// fields of layout CHW) or feature (real fields of one dimension or none; not labels), and the
/// count of each class (labels and other scalar i64 fields, masks, tokens). A field keeps
/// statistics that it already has. The result depends neither on options.team nor on
/// options.threads: whole numbers are summed exactly, real ones in a fixed number of parts whose
/// sums are added in a fixed order. Errors: E210.
std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report);

/// Checks the options about classes. Errors: E102, E106.
void check_classes(const PackOptions& options);

}  // namespace lockstep
