// SPDX-License-Identifier: Apache-2.0
// The bytes that an index travels as: numbers, texts and columns of numbers, sealed by a hash.
#pragma once

#include "lockstep/core/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// More blocks of one field than any index has; bounds what a damaged one can ask for.
inline constexpr std::uint64_t most_blocks = std::uint64_t{1} << 28;

/// No block is larger when it is expanded.
inline constexpr std::uint64_t most_decoded_bytes = std::uint64_t{1} << 40;

/// E230 because `why`.
Error damaged_index(std::string why);

class ByteWriter {
  public:
    void add(std::uint64_t value) { add(std::as_bytes(std::span(&value, 1))); }
    void add(std::string_view text);
    void add(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }

    /// Everything, and a hash of it.
    std::vector<std::byte> finish();

  private:
    std::vector<std::byte> bytes_;
};

/// Reads what a ByteWriter wrote, wherever it comes from. Errors of all members: E230.
class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes);

    std::uint64_t number();
    std::string text();

    /// How many items of at least `item_bytes` follow.
    std::uint64_t count(std::uint64_t item_bytes);

    std::span<const std::byte> take(std::uint64_t bytes);
    bool is_at_end() const { return rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
};

/// As few bytes as is simple: none for values in equal steps, four each if all fit, else eight.
void add_column(ByteWriter& out, std::span<const std::uint64_t> values);
std::vector<std::uint64_t> take_column(ByteReader& in, std::uint64_t count);

}  // namespace lockstep
