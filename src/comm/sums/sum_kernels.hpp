// SPDX-License-Identifier: Apache-2.0
// The loop behind every sum: many inputs, a fixed order, many outputs.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Sets outputs[j][i] to the sum of inputs[..][i] in `merges_after`'s order, for i in [0, count),
/// for every j. Outputs may be inputs. `merges_after` is as TreePlan::merges_after(). The
/// instruction set changes the speed, never a bit. Any alignment of a float is allowed; 64 bytes is
/// fastest.
void sum_into(std::span<const int> merges_after,
              std::span<const float* const> inputs,
              std::span<float* const> outputs,
              std::size_t count);

}  // namespace lockstep
