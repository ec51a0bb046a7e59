// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/train/settings.hpp"

namespace lockstep {

/// Whether a model that is trained on `data` can be evaluated on `test`: equal shapes, units
/// and class names. Errors: E217; those of InputReader.
void check_test_data(const DatasetIndex& test,
                     const DatasetIndex& data,
                     const TrainSettings& settings);

}  // namespace lockstep
