// SPDX-License-Identifier: Apache-2.0
#include "measure/exact_pattern.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace {

constexpr int largest_sum = 128;

/// Only so many ranks give anything but zero, or else their sum would need more bits.
int givers(int ranks) {
    return std::min(ranks, largest_sum);
}

/// Values are 0 .. period - 1.
int period(int ranks) {
    return largest_sum / givers(ranks) + 1;
}

/// Neighbouring elements differ, and no stride or swap of chunks maps the pattern to itself.
int phase_of(std::size_t element, int round, int period) {
    const std::uint64_t mixed = (element + 1) * 0x9e3779b97f4a7c15u;
    return static_cast<int>(((mixed >> 40) + static_cast<std::uint64_t>(round)) %
                            static_cast<std::uint64_t>(period));
}

int value_of(int phase, int rank, int ranks) {
    return rank < givers(ranks) ? (phase + rank) % period(ranks) : 0;
}

template <class Value>
Value encoded(int value) {
    if constexpr (std::is_same_v<Value, std::uint16_t>)  // bfloat16: the upper half of a float
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                          16);
    else
        return static_cast<Value>(value);
}

/// Calls action(Value{}) with the type that `type` is stored as.
template <class Action>
auto with_stored(DataType type, Action&& action) {
    switch (type) {
        case DataType::float32:
            return action(float{});
        case DataType::bfloat16:
            return action(std::uint16_t{});
        case DataType::float64:
            return action(double{});
        default:
            return action(std::int64_t{});
    }
}

/// By phase: this rank's value, or with `rank` = ranks the sum over all.
template <class Value>
std::vector<Value> table_of(int rank, int ranks) {
    std::vector<Value> table;
    for (int phase = 0; phase < period(ranks); ++phase) {
        int value = rank < ranks ? value_of(phase, rank, ranks) : 0;
        if (rank == ranks)
            for (int each = 0; each < ranks; ++each) value += value_of(phase, each, ranks);
        table.push_back(encoded<Value>(value));
    }
    return table;
}

}  // namespace

void fill_exact(void* data, std::size_t count, DataType type, int rank, int ranks, int round) {
    with_stored(type, [&]<class Value>(Value) {
        const auto table = table_of<Value>(rank, ranks);
        for (std::size_t i = 0; i < count; ++i)
            static_cast<Value*>(data)[i] =
                table[static_cast<std::size_t>(phase_of(i, round, period(ranks)))];
    });
}

std::uint64_t count_wrong(
    const void* data, std::size_t count, DataType type, int ranks, int round) {
    return with_stored(type, [&]<class Value>(Value) {
        const auto table = table_of<Value>(ranks, ranks);
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i)
            wrong += static_cast<const Value*>(data)[i] !=
                     table[static_cast<std::size_t>(phase_of(i, round, period(ranks)))];
        return wrong;
    });
}

}  // namespace lockstep
