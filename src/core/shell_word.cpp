// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shell_word.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace lockstep {
namespace {

bool is_control(char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F;
}

/// "$'...'", which bash, zsh and ksh know: no terminal sees the control characters.
std::string escaped(std::string_view text) {
    std::string word = "$'";
    for (const char letter : text) {
        if (letter == '\'' || letter == '\\') word += '\\';
        if (is_control(letter))
            word += fmt::format("\\{:03o}", static_cast<unsigned char>(letter));
        else
            word += letter;
    }
    return word + "'";
}

}  // namespace

std::string shell_word(std::string_view text) {
    constexpr std::string_view plain = "/._-=+:@%,";
    const bool needs_none = !text.empty() && std::ranges::all_of(text, [&](unsigned char letter) {
        return std::isalnum(letter) != 0 || plain.find(static_cast<char>(letter)) != plain.npos;
    });
    if (needs_none) return std::string(text);
    if (std::ranges::any_of(text, is_control)) return escaped(text);
    std::string word = "'";
    for (const char letter : text) word += letter == '\'' ? "'\\''" : std::string(1, letter);
    return word + "'";
}

std::string shell_text(const std::vector<std::string>& argv) {
    std::string line;
    for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_word(word);
    return line;
}

}  // namespace lockstep
