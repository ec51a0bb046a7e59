// SPDX-License-Identifier: Apache-2.0
// Values whose sum over ranks is exact in every order, so that it can be compared.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// Writes whole numbers that depend on the element and the rank; sums stay within 128. Another
/// `round` gives other values.
void fill_exact(std::span<float> data, int rank, int ranks, int round);

/// Returns the number of elements that are not the sum over all ranks of fill_exact()'s values.
std::uint64_t count_wrong(std::span<const float> data, int ranks, int round);

}  // namespace lockstep
