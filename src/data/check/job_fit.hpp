// SPDX-License-Identifier: Apache-2.0
// What a layout gives a job: lanes, memory, bytes read. Pure functions of the index.
#pragma once

#include "lockstep/data/inspect.hpp"

namespace lockstep {

/// Virtual ranks are the ranks, rounded up to a power of two: the fewest that a run has.
JobFit fit_of(const DatasetIndex& index, const JobShape& job);

}  // namespace lockstep
