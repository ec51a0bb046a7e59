// SPDX-License-Identifier: Apache-2.0
#include "collectives/message_all_reduce.hpp"

#include "collectives/sum_kernels.hpp"

#include <array>

namespace lockstep {

void MessageAllReduce::all_reduce(void* data, std::size_t count, DataType type) {
    if (size() > 1) reduce({static_cast<std::byte*>(data), count, type});
}

Elements MessageAllReduce::scratch(const Elements& like, int index, int places) {
    const std::size_t place = (like.bytes() + 63) / 64 * 64;
    const std::size_t bytes = place * static_cast<std::size_t>(places);
    if (bytes > scratch_bytes_) {
        scratch_ = make_aligned_floats(bytes / sizeof(float));
        scratch_bytes_ = bytes;
    }
    return {reinterpret_cast<std::byte*>(scratch_.get()) + place * static_cast<std::size_t>(index),
            like.count,
            like.type};
}

void MessageAllReduce::add(const Elements& into, const Elements& from) {
    constexpr std::array merges = {0, 1};
    const std::array<const void*, 2> inputs = {into.data, from.data};
    const std::array<void*, 1> outputs = {into.data};
    sum_into(into.type, merges, inputs, outputs, into.count);
}

}  // namespace lockstep
