// SPDX-License-Identifier: Apache-2.0
// Textbook algorithms that sum over ranks, for comparison with the exchange, and values whose sum
// is exact in every order, so that it can be compared.
#pragma once

#include "lockstep/comm/measure.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace lockstep {

/// Collective. Sets data[i] to its sum over ranks, on every rank.
using InPlaceSum = std::function<void(std::span<float> data)>;

/// Collective. Makes any method but SumMethod::lockstep.
InPlaceSum make_textbook_sum(const Communicator& ranks, SumMethod method);

/// Writes whole numbers that depend on the element and the rank; sums stay within 128. Another
/// `round` gives other values.
void fill_exact(std::span<float> data, int rank, int ranks, int round);

/// Returns the number of elements that are not the sum over all ranks of fill_exact()'s values.
std::uint64_t count_wrong(std::span<const float> data, int ranks, int round);

}  // namespace lockstep
