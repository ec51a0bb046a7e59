// SPDX-License-Identifier: Apache-2.0
// Elements that a file has in another width or byte order than any field: they become the next
// wider of our types that holds all their values.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// A number in two's complement or IEEE 754, or the upper half of an f32 (bfloat16).
struct StoredNumber {
    std::size_t bytes = 0;
    bool is_whole = false, has_sign = false, is_big_endian = false, is_brain = false;
    bool operator==(const StoredNumber&) const = default;
};

/// One kind of such elements, numbered from 1. 8 and 16 bits become i32, u32 and u64 i64, floats of
/// 16 bits f32; u64 beyond i64 becomes the largest i64, so it is for labels only, which are
/// compared with their classes.
class Widening {
  public:
    /// Of numbers that no field has as they are; `code` 0 if they cannot become any.
    static Widening of(const StoredNumber& stored);
    /// Of numbers that become class numbers, i64, of any width, or floating ones: what is not whole
    /// becomes `no_class`. Code 0 if they cannot become any.
    static Widening to_labels(const StoredNumber& stored);
    static constexpr std::int64_t no_class = INT64_MIN;

    /// Whatever `code`: see is_known().
    explicit Widening(std::uint32_t code = 0) : code_(code) {}

    std::uint32_t code() const { return code_; }
    bool is_known() const;
    bool holds_all() const;  ///< of all but u64
    ElementType type() const;
    std::size_t stored_bytes() const;  ///< of an element

    /// Fills `raw`; false unless both have as many elements, and nothing else.
    [[nodiscard]] bool undo(std::span<const std::byte> stored, std::span<std::byte> raw) const;

    /// Of `raw` bytes of elements as they become.
    std::uint64_t stored_bytes_of(std::uint64_t raw) const {
        return raw / element_bytes(type()) * stored_bytes();
    }

  private:
    std::uint32_t code_;
};

}  // namespace lockstep
