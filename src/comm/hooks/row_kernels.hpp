// SPDX-License-Identifier: Apache-2.0
// The little linear algebra that PowerSGD needs, on rows of floats; the same bits on every rank.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// In float32.
float dot(std::span<const float> a, std::span<const float> b);

/// into += factor * from
void add_scaled(std::span<float> into, std::span<const float> from, float factor);

bool all_finite(std::span<const float> values);

/// Gram-Schmidt, each row twice ("twice is enough": Giraud, Langou, Rozloznik, "The loss of
/// orthogonality in the Gram-Schmidt orthogonalization process", Comput. Math. Appl. 50, 2005,
/// https://doi.org/10.1016/j.camwa.2005.08.009). A row that depends on those before becomes zero.
void orthonormalise(std::span<float> rows, std::size_t row_count);

}  // namespace lockstep
