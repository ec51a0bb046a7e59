// SPDX-License-Identifier: Apache-2.0
// h5py's own filter, 32000: LZF as in Marc Lehmann's liblzf. A control byte c below 32 is followed
// by c + 1 literal bytes; a larger one repeats 3 to 264 earlier bytes, from up to 8 KiB back.
#include "chunk_filters.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr unsigned most_literals = 32, long_repeat = 7;

// Reads a byte at a time from what is left.
class Input {
  public:
    explicit Input(std::span<const std::byte> bytes) : rest_(bytes) {}
    bool is_at_end() const { return rest_.empty(); }
    std::size_t left() const { return rest_.size(); }
    unsigned next() {
        const auto value = std::to_integer<unsigned>(rest_[0]);
        rest_ = rest_.subspan(1);
        return value;
    }
    std::span<const std::byte> take(std::size_t bytes) {
        const auto taken = rest_.first(bytes);
        rest_ = rest_.subspan(bytes);
        return taken;
    }

  private:
    std::span<const std::byte> rest_;
};

}  // namespace

std::uint64_t lzf_bytes(std::span<const std::byte> stored) {
    Input in(stored);
    std::uint64_t bytes = 0;
    while (!in.is_at_end()) {
        const unsigned control = in.next();
        if (control < most_literals) {
            if (control + 1 > in.left()) return 0;
            in.take(control + 1);
            bytes += control + 1;
            continue;
        }
        std::size_t count = control >> 5;
        if (in.left() < (count == long_repeat ? 2U : 1U)) return 0;
        if (count == long_repeat) count += in.next();
        in.next();
        bytes += count + 2;
    }
    return bytes;
}

bool decode_lzf(std::span<const std::byte> stored, std::span<std::byte> raw) {
    Input in(stored);
    std::size_t done = 0;
    while (!in.is_at_end()) {
        const unsigned control = in.next();
        if (control < most_literals) {
            const std::size_t count = control + 1;
            if (count > in.left() || count > raw.size() - done) return false;
            std::ranges::copy(in.take(count), raw.begin() + static_cast<std::ptrdiff_t>(done));
            done += count;
            continue;
        }
        std::size_t count = control >> 5;
        if (in.left() < (count == long_repeat ? 2U : 1U)) return false;
        if (count == long_repeat) count += in.next();
        count += 2;
        const std::size_t back = ((control & 31U) << 8 | in.next()) + 1;
        if (back > done || count > raw.size() - done) return false;
        // Byte by byte: a repeat may reach into itself.
        for (; count > 0; --count, ++done) raw[done] = raw[done - back];
    }
    return done == raw.size();
}

}  // namespace lockstep
