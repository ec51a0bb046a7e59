// SPDX-License-Identifier: Apache-2.0
// The one loop that every sum is made of: many inputs, a fixed order, many outputs.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// How many times the two topmost entries of a stack merge after input k was pushed. That of
/// TreePlan::merges_after(), or the balanced tree over `inputs` ranks: siblings merge as in a
/// binary counter, what is left merges from the right.
std::vector<int> balanced_order(int inputs);

/// outputs[j][i] = inputs[..][i] summed in `merges_after`'s order, for i in [0, count), for every
/// j. Outputs may be inputs. bfloat16 adds in float32 and rounds once. The instruction set changes
/// the speed, never a bit. Any alignment that suits the element; 64 bytes is fastest.
void sum_into(DataType type,
              std::span<const int> merges_after,
              std::span<const void* const> inputs,
              std::span<void* const> outputs,
              std::size_t count);

/// `out` gets what is in `box`, and `box` what is in `in`; `in` may be `out`. A cache line that is
/// read and written at once moves from one core to another as a whole: many times faster than to
/// write to a line that another core may still read.
void swap_through(std::byte* box, const std::byte* in, std::byte* out, std::size_t bytes);

}  // namespace lockstep
