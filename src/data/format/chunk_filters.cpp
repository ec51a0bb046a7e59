// SPDX-License-Identifier: Apache-2.0
#include "chunk_filters.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t checksum_bytes = 4;

// Words that can be added before a 32-bit sum of sums overflows.
constexpr std::size_t words_before_folding = 360;

std::uint32_t folded(std::uint32_t sum) {
    return (sum & 0xffff) + (sum >> 16);
}

// HDF5 1.6.2 and earlier swapped the bytes within each half on little-endian machines.
std::uint32_t swapped_halves(std::uint32_t sum) {
    return (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
}

}  // namespace

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
    std::uint32_t sum = 0, sum_of_sums = 0;
    const auto add = [&](std::byte high, std::byte low) {
        sum += std::to_integer<std::uint32_t>(high) << 8 | std::to_integer<std::uint32_t>(low);
        sum_of_sums += sum;
    };
    const auto fold = [&] {
        sum = folded(sum);
        sum_of_sums = folded(sum_of_sums);
    };
    while (bytes.size() >= 2) {
        const std::size_t words = std::min(bytes.size() / 2, words_before_folding);
        for (std::size_t i = 0; i < words; ++i) add(bytes[2 * i], bytes[2 * i + 1]);
        fold();
        bytes = bytes.subspan(2 * words);
    }
    if (!bytes.empty()) {
        add(bytes[0], std::byte{0});
        fold();
    }
    fold();
    return sum_of_sums << 16 | sum;
}

std::span<const std::byte> checked_fletcher32(std::span<const std::byte> stored) {
    if (stored.size() <= checksum_bytes) return {};
    const auto content = stored.first(stored.size() - checksum_bytes);
    std::array<std::uint8_t, checksum_bytes> said{};
    std::memcpy(said.data(), stored.data() + content.size(), checksum_bytes);
    std::uint32_t expected = 0;
    for (std::size_t i = checksum_bytes; i-- > 0;) expected = expected << 8 | said[i];
    const std::uint32_t sum = fletcher32(content);
    if (sum != expected && swapped_halves(sum) != expected) return {};
    return content;
}

void unshuffle(std::span<const std::byte> stored,
               std::uint32_t element_bytes,
               std::span<std::byte> raw) {
    const std::size_t elements = stored.size() / element_bytes;
    if (element_bytes == 1 || elements <= 1) {
        std::ranges::copy(stored, raw.begin());
        return;
    }
    // A few hundred elements at a time: what is written stays in the first cache.
    constexpr std::size_t strip = 512;
    for (std::size_t first = 0; first < elements; first += strip) {
        const std::size_t last = std::min(first + strip, elements);
        for (std::size_t byte = 0; byte < element_bytes; ++byte) {
            const std::byte* from = stored.data() + byte * elements;
            std::byte* to = raw.data() + byte;
            for (std::size_t i = first; i < last; ++i) to[i * element_bytes] = from[i];
        }
    }
    const std::size_t whole = elements * element_bytes;
    std::ranges::copy(stored.subspan(whole), raw.begin() + static_cast<std::ptrdiff_t>(whole));
}

}  // namespace lockstep
