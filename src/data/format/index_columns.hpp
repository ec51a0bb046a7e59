// SPDX-License-Identifier: Apache-2.0
// The form in which an index is sent: numbers, texts and columns of numbers, sealed by a hash.
#pragma once

#include "lockstep/core/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Upper limit of the blocks of one field, which bounds the memory that a damaged index asks for.
inline constexpr std::uint64_t most_blocks = std::uint64_t{1} << 28;

/// Largest size of an expanded block.
inline constexpr std::uint64_t most_decoded_bytes = std::uint64_t{1} << 40;

/// Returns E230 with the reason `why`.
Error damaged_index(std::string why);

class ByteWriter {
  public:
    void add(std::uint64_t value) { add(std::as_bytes(std::span(&value, 1))); }
    void add(std::string_view text);
    void add(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }

    /// Returns all bytes, and a hash of them.
    std::vector<std::byte> finish();

  private:
    std::vector<std::byte> bytes_;
};

/// Reads untrusted bytes of a ByteWriter. Errors of all members: E230.
class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes);

    std::uint64_t number();
    std::string text();

    /// Reads the number of following items of at least `item_bytes`.
    std::uint64_t count(std::uint64_t item_bytes);

    std::span<const std::byte> take(std::uint64_t bytes);
    bool is_at_end() const { return rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
};

/// Writes a column in few bytes: none for values in equal steps, four each if all fit, else eight.
void add_column(ByteWriter& out, std::span<const std::uint64_t> values);
std::vector<std::uint64_t> take_column(ByteReader& in, std::uint64_t count);

}  // namespace lockstep
