// SPDX-License-Identifier: Apache-2.0
// Mean and deviation that data do not have themselves.
#pragma once

#include "loop/inputs.hpp"
#include "loop/start.hpp"

namespace lockstep {

/// Collective. Gives the training data the mean and deviation that --normalise asks for: by one
/// pass of the data, which gives the same bits with any ranks, or from a file. A run that goes on
/// keeps its own. Errors: E103 (no such file), E217 (it has none of an input), those of reading.
void settle_statistics(const Start& start, Inputs& inputs);

}  // namespace lockstep
