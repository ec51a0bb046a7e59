// SPDX-License-Identifier: Apache-2.0
// Other ways to sum over ranks, to compare the exchange with.
#pragma once

#include "lockstep/comm/measure.hpp"

#include <functional>
#include <span>

namespace lockstep {

/// Collective. data[i] = sum over ranks of data[i], on every rank.
using InPlaceSum = std::function<void(std::span<float> data)>;

/// Collective. Any method but SumMethod::lockstep.
InPlaceSum make_textbook_sum(const Communicator& ranks, SumMethod method);

}  // namespace lockstep
