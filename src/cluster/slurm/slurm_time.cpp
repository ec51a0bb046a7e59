// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/slurm_facts.hpp"
#include "lockstep/core/numbers.hpp"

#include "slurm/text_parts.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace lockstep {
namespace {

// A number of few digits: no sign, nothing that could overflow below.
std::optional<std::int64_t> digits(const std::string& text) {
    const bool fits = !text.empty() && text.size() <= 9 && std::ranges::all_of(text, [](char c) {
        return std::isdigit(static_cast<unsigned char>(c));
    });
    return fits ? parse_integer(text) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_slurm_time(const std::string& text) {
    const auto dash = text.find('-');
    const bool has_days = dash != text.npos;
    const auto days = has_days ? digits(text.substr(0, dash)) : 0;
    const auto fields = split_text(has_days ? text.substr(dash + 1) : text, ':');
    if (!days || fields.size() > 3) return std::nullopt;
    // With days hours come first; without, two fields are minutes and seconds, one is minutes.
    const std::size_t first = has_days || fields.size() == 3 ? 0 : 1;
    std::int64_t parts[4] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const auto part = digits(fields[i]);
        if (!part) return std::nullopt;
        parts[first + i] = *part;
    }
    return ((*days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string slurm_time_text(std::int64_t seconds) {
    const std::string clock =
        fmt::format("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    return seconds < 86'400 ? clock : fmt::format("{}-{}", seconds / 86'400, clock);
}

}  // namespace lockstep
