// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>

namespace lockstep {

double algorithm_gb_per_s(std::size_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

double bus_gb_per_s(std::size_t bytes, double seconds, int ranks) {
    return algorithm_gb_per_s(bytes, seconds) * 2 * (ranks - 1) / ranks;
}

double shared_memory_bytes(std::size_t bytes, int ranks) {
    return static_cast<double>(bytes) * (ranks + 1);
}

double fraction_of(const MemoryLimit& limit, double seconds, int ranks) {
    return shared_memory_bytes(limit.bytes, ranks) / seconds / limit.bytes_per_s;
}

std::vector<std::size_t> size_steps(std::size_t min_bytes, std::size_t max_bytes, double factor) {
    expect(min_bytes > 0 && factor > 1, "sizes grow");
    std::vector<std::size_t> sizes;
    for (double size = static_cast<double>(min_bytes); size <= static_cast<double>(max_bytes);
         size *= factor) {
        const std::size_t whole = std::max<std::size_t>(static_cast<std::size_t>(size) / 8, 1) * 8;
        if (sizes.empty() || whole != sizes.back()) sizes.push_back(whole);
    }
    return sizes;
}

}  // namespace lockstep
