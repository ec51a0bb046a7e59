// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strict parsing of numbers in the forms that users write, and short texts of numbers.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the whole of `text` as a decimal integer, or nothing.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// Returns the whole of `text` as a finite real number, or nothing.
std::optional<double> parse_real(std::string_view text);

/// Returns bytes (powers of 1024) for "64KiB", "25 MiB", "1g", "4096"; or nothing.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// Returns "1.5 GiB", "64 KiB", "12 B".
std::string bytes_text(std::uint64_t bytes);

/// Returns the number with separators: "265,612".
std::string grouped(std::uint64_t value);
/// Does the same for a number that is not negative.
template <std::signed_integral Number>
std::string grouped(Number value) {
    return grouped(static_cast<std::uint64_t>(value));
}

/// Returns the value; a NaN without its sign, which means nothing and would be printed: "-nan".
double without_sign_of_nan(double value);

/// Returns the median of at least one value; of an even number the mean of the two in the middle.
double median_of(std::vector<double> values);

}  // namespace lockstep
