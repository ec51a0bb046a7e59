// SPDX-License-Identifier: Apache-2.0
// h5py's own filter, 32000: LZF as in Marc Lehmann's liblzf. A control byte c below 32 is followed
// by c + 1 literal bytes; a larger one repeats 3 to 264 earlier bytes, from up to 8 KiB back.
#include "codec.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr unsigned most_literals = 32, long_repeat = 7;

// Calls `literals` with bytes and `repeat` with how far back how many lie, as the stream says.
// Returns false if it is cut short, or one of them does.
template <class Literals, class Repeat>
bool follow(std::span<const std::byte> stored, Literals&& literals, Repeat&& repeat) {
    const auto next = [&] {
        const auto value = std::to_integer<unsigned>(stored[0]);
        stored = stored.subspan(1);
        return value;
    };
    while (!stored.empty()) {
        const unsigned control = next();
        if (control < most_literals) {
            const std::size_t count = control + 1;
            if (count > stored.size() || !literals(stored.first(count))) return false;
            stored = stored.subspan(count);
            continue;
        }
        std::size_t count = control >> 5;
        if (stored.size() < (count == long_repeat ? 2U : 1U)) return false;
        if (count == long_repeat) count += next();
        const std::size_t back = ((control & 31U) << 8 | next()) + 1;
        if (!repeat(back, count + 2)) return false;
    }
    return true;
}

}  // namespace

std::uint64_t lzf_bytes(std::span<const std::byte> stored) {
    std::uint64_t bytes = 0;
    const auto add = [&](std::size_t count) {
        bytes += count;
        return true;
    };
    const bool is_whole = follow(
        stored,
        [&](std::span<const std::byte> literals) { return add(literals.size()); },
        [&](std::size_t, std::size_t count) { return add(count); });
    return is_whole ? bytes : 0;
}

bool decode_lzf(std::span<const std::byte> stored, std::span<std::byte> raw) {
    std::size_t done = 0;
    const auto copy = [&](std::span<const std::byte> literals) {
        if (literals.size() > raw.size() - done) return false;
        std::ranges::copy(literals, raw.begin() + static_cast<std::ptrdiff_t>(done));
        done += literals.size();
        return true;
    };
    const auto repeat = [&](std::size_t back, std::size_t count) {
        if (back > done || count > raw.size() - done) return false;
        // Byte by byte: a repeat may reach into itself.
        for (; count > 0; --count, ++done) raw[done] = raw[done - back];
        return true;
    };
    return follow(stored, copy, repeat) && done == raw.size();
}

}  // namespace lockstep
