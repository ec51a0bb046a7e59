// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/dataset_index.hpp"

#include "codec.hpp"
#include "widening.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_filters = 8;

// `expansion` is what one stored byte stands for at most, 1 where nothing is compressed: in deflate
// 258 bytes in two bits (RFC 1951), in LZ4 255 in a byte of a match's length (lz4_Block_format.md),
// in LZF 264 in three, in Zstandard a block of 128 KiB in the four bytes of a repeated one (RFC
// 8878), which is the strongest of those that Blosc 1 holds.
struct KnownFilter {
    FilterKind kind;
    std::string_view name;
    std::uint64_t expansion = 1;
};
constexpr auto known_filters = std::to_array<KnownFilter>({
    {FilterKind::deflate, "deflate", 1032},
    {FilterKind::shuffle, "shuffle"},
    {FilterKind::fletcher32, "fletcher32"},
    {FilterKind::lzf, "lzf", 88},
    {FilterKind::blosc, "blosc", 32768},
    {FilterKind::lz4, "lz4", 255},
    {FilterKind::zstd, "zstd", 32768},
    {FilterKind::widening, "widening"},
    {FilterKind::unpacking, "unpacking"},
});

const KnownFilter* find_filter(std::uint64_t kind) {
    const auto* found = std::ranges::find_if(known_filters, [&](const KnownFilter& known) {
        return static_cast<std::uint64_t>(known.kind) == kind;
    });
    return found == known_filters.end() ? nullptr : found;
}

std::uint64_t expansion(const Filter& filter) {
    if (filter.kind == FilterKind::widening) {
        const Widening widening(filter.element);
        return element_bytes(widening.type()) / widening.stored_bytes();
    }
    const KnownFilter* known = find_filter(static_cast<std::uint64_t>(filter.kind));
    return known ? known->expansion : 1;
}

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

bool is_known_filter(std::uint64_t kind) {
    if (kind == static_cast<std::uint64_t>(FilterKind::blosc)) return reads_blosc();
    return !is_own_filter(kind) && find_filter(kind) != nullptr;
}

bool is_own_filter(std::uint64_t kind) {
    return kind == static_cast<std::uint64_t>(FilterKind::widening) ||
           kind == static_cast<std::uint64_t>(FilterKind::unpacking);
}

std::string filter_text(const FilterChain& chain) {
    std::string text;
    for (const Filter& filter : chain) {
        const KnownFilter* known = find_filter(static_cast<std::uint64_t>(filter.kind));
        text += fmt::format("{}{}", text.empty() ? "" : "+", known ? known->name : "?");
    }
    return text.empty() ? "none" : text;
}

std::string filter_fault(const FilterChain& chain) {
    if (chain.size() > most_filters)
        return fmt::format("it has {} filters; {} are supported", chain.size(), most_filters);
    int compressing = 0;
    for (const Filter& filter : chain) {
        const KnownFilter* known = find_filter(static_cast<std::uint64_t>(filter.kind));
        if (!known) return fmt::format("it has a filter {}", static_cast<int>(filter.kind));
        if (known->expansion > 1) ++compressing;
        if (filter.kind == FilterKind::shuffle && filter.element == 0)
            return "its shuffle filter does not say how large an element is";
        if (filter.kind == FilterKind::widening &&
            (&filter != &chain.front() || !Widening(filter.element).is_known()))
            return "its elements change in an unknown way";
        if (filter.kind == FilterKind::unpacking &&
            (&filter != &chain.front() || !Unpacking::of(filter)))
            return "its numbers stand for others in an unknown way";
    }
    return compressing > 1 ? "it is compressed more than once" : "";
}

std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored) {
    std::uint64_t bytes = std::min(stored, most_chunk_bytes);
    for (const Filter& filter : chain)
        bytes = std::min(bytes * expansion(filter), most_chunk_bytes);
    if (!chain.empty() && chain[0].kind == FilterKind::unpacking)
        bytes = std::min(bytes / Unpacking::of(chain[0])->stored_bytes() * sizeof(float),
                         most_chunk_bytes);
    return bytes;
}

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
    std::uint32_t expected = 0;  // little-endian, as this machine
    std::memcpy(&expected, stored.data() + content.size(), checksum_bytes);
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
