// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class T>
std::optional<T> parse_whole(std::string_view text) {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

std::optional<int> shift_of(std::string_view unit) {
    if (unit.empty() || unit == "b" || unit == "B") return 0;
    const std::string_view letters = "kmgt";
    const auto index = letters.find(static_cast<char>(unit[0] | 0x20));
    const std::string_view rest = unit.substr(1);
    const bool known = rest.empty() || rest == "iB" || rest == "ib" || rest == "B" || rest == "b";
    if (index == letters.npos || !known) return std::nullopt;
    return static_cast<int>(index + 1) * 10;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
    return parse_whole<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
    const auto value = parse_whole<double>(text);
    return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
    const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto number = parse_real(text.substr(0, digits));
    std::string_view unit = text.substr(digits);
    while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
    const auto shift = shift_of(unit);
    if (!number || !shift || *number < 0) return std::nullopt;
    const double bytes = std::ldexp(*number, *shift);
    if (bytes >= 0x1p62 || bytes != std::floor(bytes)) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
}

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= (unit == 0 ? 1024 : 1023.95) && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    const bool whole = value == std::floor(value);
    return whole ? fmt::format("{:.0f} {}", value, units[unit])
                 : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string grouped(std::uint64_t value) {
    const std::string digits = fmt::format("{}", value);
    std::string text;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
        text += digits[i];
    }
    return text;
}

double without_sign_of_nan(double value) {
    return std::isnan(value) ? std::abs(value) : value;
}

double median_of(std::vector<double> values) {
    expect(!values.empty(), "there is a median");
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace lockstep
