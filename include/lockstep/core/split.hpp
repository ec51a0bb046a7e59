// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists in one text: "a,b,c".
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the parts between the separators, empty ones included: "a,,b" has three, "" has one.
inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

/// Returns `text` without blanks and tabs around it.
inline std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

}  // namespace lockstep
