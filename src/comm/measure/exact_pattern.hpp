// SPDX-License-Identifier: Apache-2.0
// Values whose sum over ranks is exact in every type and every order, so that it can be compared.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Whole numbers that depend on the element and the rank; sums stay within 128, which bfloat16
/// still holds exactly. Another `round`, other values.
void fill_exact(void* data, std::size_t count, DataType type, int rank, int ranks, int round);

/// How many elements are not the sum over all ranks of what fill_exact() wrote.
std::uint64_t count_wrong(const void* data, std::size_t count, DataType type, int ranks, int round);

}  // namespace lockstep
