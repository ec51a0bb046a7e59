// SPDX-License-Identifier: Apache-2.0
// Keeps an exponential moving average of the weights that another optimizer trains.
#pragma once

#include "lockstep/train/optimizer.hpp"

#include <memory>

namespace lockstep {

/// Trains as `inner` does, to the bit. The average, the last of the state vectors, begins as the
/// weights before the first step (Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992; with
/// weights that fade by `decay` a step as in https://arxiv.org/abs/1703.01780).
std::unique_ptr<Optimizer> make_averaged(std::unique_ptr<Optimizer> inner, double decay);

}  // namespace lockstep
