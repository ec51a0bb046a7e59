// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shell_word.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep {

std::string shell_word(std::string_view text) {
    constexpr std::string_view plain = "/._-=+:@%,";
    const bool needs_none = !text.empty() && std::ranges::all_of(text, [&](unsigned char letter) {
        return std::isalnum(letter) != 0 || plain.find(static_cast<char>(letter)) != plain.npos;
    });
    if (needs_none) return std::string(text);
    std::string word = "'";
    for (const char letter : text) word += letter == '\'' ? "'\\''" : std::string(1, letter);
    return word + "'";
}

}  // namespace lockstep
