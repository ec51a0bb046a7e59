// SPDX-License-Identifier: Apache-2.0
// How a model's weights are spread, layer by layer, for TensorBoard.
#pragma once

#include "lockstep/observe/tensorboard.hpp"

#include "model/model.hpp"

#include <cstdint>

namespace lockstep {

/// One histogram for each parameter, "weights/NAME". Of a large one every n-th value is counted, so
/// that some 16,384 are: a layer takes about a millisecond, however large it is.
void add_weight_histograms(EventFile& events, const Model& model, std::int64_t step);

}  // namespace lockstep
