// SPDX-License-Identifier: Apache-2.0
#include "gather.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t line = 64;

// The processor itself goes on with a row once it has seen so many lines of it.
constexpr std::size_t most_prefetched = 4096;

// So many bytes are on their way at once. They go to the second cache: the first one's few line
// buffers held rows up to half of the speed (docs/decisions/0011).
constexpr std::size_t bytes_ahead = 12288;

void prefetch(const std::byte* row, std::size_t bytes) {
    constexpr int to_read = 0, second_cache = 2;
    for (std::size_t at = 0; at < bytes; at += line)
        __builtin_prefetch(row + at, to_read, second_cache);
}

// A size that the compiler knows costs no call.
template <std::size_t bytes>
void gather_small(std::span<const std::byte* const> rows, std::byte* to) {
    constexpr std::size_t ahead = 16;
    for (std::size_t i = 0; i < rows.size(); ++i, to += bytes) {
        if (i + ahead < rows.size()) __builtin_prefetch(rows[i + ahead]);
        std::memcpy(to, rows[i], bytes);
    }
}

}  // namespace

void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to) {
    switch (bytes) {
        case 1:
            return gather_small<1>(rows, to);
        case 4:
            return gather_small<4>(rows, to);
        case 8:
            return gather_small<8>(rows, to);
        default:
            break;
    }
    const std::size_t fetched = std::min(bytes, most_prefetched);
    const std::size_t ahead = std::max<std::size_t>(bytes_ahead / fetched, 1);
    for (std::size_t i = 0; i < std::min(ahead, rows.size()); ++i) prefetch(rows[i], fetched);
    for (std::size_t i = 0; i < rows.size(); ++i, to += bytes) {
        if (i + ahead < rows.size()) prefetch(rows[i + ahead], fetched);
        std::memcpy(to, rows[i], bytes);
    }
}

}  // namespace lockstep
