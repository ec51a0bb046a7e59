// SPDX-License-Identifier: Apache-2.0
// Texts of a file, as plain values that travel between processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A class's name has at most so many bytes. Of a longer text one more is given, by which it is
/// known.
inline constexpr std::size_t most_text_bytes = 1024;

/// Which text each of some rows has.
struct Texts {
    std::vector<std::string> distinct;  ///< bytes as they are, also such as are not UTF-8
    std::vector<std::uint32_t> rows;    ///< by row: its number in `distinct`
    bool operator==(const Texts&) const = default;
};

std::vector<std::byte> to_bytes(const Texts& texts);

/// Errors: E230 for bytes that were not made by to_bytes(), or of another number of rows.
Texts texts_from(std::span<const std::byte> bytes, std::uint64_t rows);

}  // namespace lockstep
