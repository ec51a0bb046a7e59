// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/settings.hpp"

#include "task/task.hpp"

namespace lockstep {

/// Checks that a model trained on `data` can take `test`: equal shapes and units, no tokens beyond
/// its vocabulary. Errors: E217; those of InputReader.
void check_test_inputs(const DatasetIndex& test,
                       const DatasetIndex& data,
                       const TrainSettings& settings,
                       const Task& task);

/// Checks that a model trained on `data` can be evaluated on `test`: its inputs, and the task's
/// requirements. Errors: as above.
void check_test_data(const DatasetIndex& test,
                     const DatasetIndex& data,
                     const TrainSettings& settings,
                     const Task& task);

}  // namespace lockstep
