// SPDX-License-Identifier: Apache-2.0
#include "measure/exact_pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {
namespace {

constexpr int largest_sum = 128;

/// Only so many ranks give anything but zero.
int givers(int ranks) {
    return std::min(ranks, largest_sum);
}

/// Values are 0 .. period - 1.
int period(int ranks) {
    return largest_sum / givers(ranks) + 1;
}

/// Neighbouring elements differ, and no stride or swap of chunks maps the pattern to itself.
std::size_t phase_of(std::size_t element, int round, int period) {
    const std::uint64_t mixed = (element + 1) * 0x9e3779b97f4a7c15u;
    return ((mixed >> 40) + static_cast<std::uint64_t>(round)) % static_cast<std::uint64_t>(period);
}

int value_of(int phase, int rank, int ranks) {
    return rank < givers(ranks) ? (phase + rank) % period(ranks) : 0;
}

/// By phase: the sum over ranks [first, end).
std::vector<float> table_of(int first, int end, int ranks) {
    std::vector<float> table;
    for (int phase = 0; phase < period(ranks); ++phase) {
        int value = 0;
        for (int rank = first; rank < end; ++rank) value += value_of(phase, rank, ranks);
        table.push_back(static_cast<float>(value));
    }
    return table;
}

}  // namespace

void fill_exact(std::span<float> data, int rank, int ranks, int round) {
    const std::vector<float> table = table_of(rank, rank + 1, ranks);
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = table[phase_of(i, round, period(ranks))];
}

std::uint64_t count_wrong(std::span<const float> data, int ranks, int round) {
    const std::vector<float> table = table_of(0, ranks, ranks);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i)
        wrong += data[i] != table[phase_of(i, round, period(ranks))];
    return wrong;
}

}  // namespace lockstep
