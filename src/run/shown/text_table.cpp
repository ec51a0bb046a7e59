// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/text_table.hpp"

#include "lockstep/core/log.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Returns the width of each column; 0: it is empty below its head.
std::vector<std::size_t> widths_of(const Rows& rows) {
    std::vector<std::size_t> below, all;
    for (const auto& row : rows) {
        below.resize(std::max(below.size(), row.size()));
        all.resize(below.size());
        for (std::size_t i = 0; i < row.size(); ++i) {
            all[i] = std::max(all[i], row[i].size());
            if (&row != &rows.front()) below[i] = std::max(below[i], row[i].size());
        }
    }
    for (std::size_t i = 0; i < all.size(); ++i)
        if (below[i] == 0) all[i] = 0;
    return all;
}

std::string cell(const std::string& text, std::size_t width, Align align) {
    return align == Align::left ? fmt::format("{:<{}}", text, width)
                                : fmt::format("{:>{}}", text, width);
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       Align first,
                       Align rest,
                       const std::string& indent) {
    const std::vector<std::size_t> widths = widths_of(rows);
    std::string text;
    for (const auto& row : rows) {
        std::string line = indent;
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (widths[i] == 0) continue;
            line += (line.size() > indent.size() ? "  " : "") +
                    cell(printable(row[i]), widths[i], i == 0 ? first : rest);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
    std::string out;
    std::size_t column = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        if (column > 0 && column + 1 + word.size() > width) {
            out += "\n" + std::string(indent, ' ');
            column = 0;
        }
        if (column > 0) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
        at = end + 1;
    }
    return out;
}

std::string backslashed(std::string_view text, std::string_view special) {
    std::string out;
    for (const char letter : text) {
        if (special.find(letter) != special.npos) out += '\\';
        out += letter;
    }
    return out;
}

std::string csv_cell(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == text.npos) return text;
    std::string quoted = "\"";
    for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    return quoted + '"';
}

std::string seconds_text(double seconds) {
    if (seconds == 0) return "0 s";
    const double size = std::abs(seconds);
    if (size >= 0.9995) return fmt::format("{:.4g} s", seconds);
    if (size >= 0.9995e-3) return fmt::format("{:.4g} ms", 1e3 * seconds);
    return fmt::format("{:.4g} us", 1e6 * seconds);
}

std::string percent_text(double share) {
    return fmt::format("{:.1f} %", 100 * share);
}

std::string ranks_count_text(int ranks) {
    return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

}  // namespace lockstep
