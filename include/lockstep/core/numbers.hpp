// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers as users write them: strict parsing, and short text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The whole of `text` as a decimal integer, or nothing.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// The whole of `text` as a finite real number, or nothing.
std::optional<double> parse_real(std::string_view text);

/// "64KiB", "25 MiB", "1g", "4096": bytes (powers of 1024), or nothing.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// "1.5 GiB", "64 KiB", "12 B".
std::string bytes_text(std::uint64_t bytes);

/// "265,612".
std::string grouped(std::uint64_t value);

}  // namespace lockstep
