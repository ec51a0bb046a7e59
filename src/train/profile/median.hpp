// SPDX-License-Identifier: Apache-2.0
// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

/// Returns the median of one or more values; the upper one of two in the middle.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

}  // namespace lockstep
