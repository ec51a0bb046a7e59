// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/axes.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// No image has fewer rows, and few have more channels.
constexpr std::int64_t few = 4;

}  // namespace

bool has_channels_last(const Field& field) {
    return field.layout == "HWC" && field.shape.size() == 3;
}

std::string axes_text(const Field& field) {
    const auto& shape = field.shape;
    const bool is_picture = field.layout == "HW" || field.name == "images";
    if (shape.size() == 2 && is_picture) return fmt::format("H {}, W {}", shape[0], shape[1]);
    if (shape.size() != 3) return "";
    if (!has_channels_last(field))
        return fmt::format("C {}, H {}, W {}", shape[0], shape[1], shape[2]);
    return fmt::format("C {}, H {}, W {} (stored H, W, C)", shape[2], shape[0], shape[1]);
}

bool may_have_channels_last(const std::vector<std::int64_t>& shape) {
    const std::int64_t first = shape[0], middle = shape[1], last = shape[2];
    const bool is_small = last <= few && first > few;
    const bool is_smaller = last <= std::min(first, middle) / 2;
    return is_small || is_smaller || (first == middle && last != middle);
}

}  // namespace lockstep
