// SPDX-License-Identifier: Apache-2.0
// One buffer of one collective call, in bytes.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include <cstddef>

namespace lockstep {

/// A half-open range of bytes.
struct ByteRange {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
};

/// What stripe_of() gives, in bytes: whole lines, so that it is the same for every type.
inline ByteRange byte_stripe(std::size_t bytes, int index, int parts) {
    const std::size_t lines = bytes / 64, n = static_cast<std::size_t>(parts);
    const auto i = static_cast<std::size_t>(index);
    const std::size_t end = index + 1 == parts ? bytes : lines * (i + 1) / n * 64;
    return {lines * i / n * 64, end};
}

struct Message {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    DataType type = DataType::float32;
};

}  // namespace lockstep
