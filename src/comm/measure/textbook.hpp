// SPDX-License-Identifier: Apache-2.0
// Textbook algorithms that sum over ranks, for comparison with the exchange.
#pragma once

#include "lockstep/comm/measure.hpp"

#include <functional>
#include <span>

namespace lockstep {

/// Collective. Sets data[i] to its sum over ranks, on every rank.
using InPlaceSum = std::function<void(std::span<float> data)>;

/// Collective. Makes any method but SumMethod::lockstep.
InPlaceSum make_textbook_sum(const Communicator& ranks, SumMethod method);

}  // namespace lockstep
