// SPDX-License-Identifier: Apache-2.0
/// @file
/// Columns of text, and numbers formatted for tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Alignment of a cell's text in its column.
enum class Align { left, right };

/// Returns rows of cells, the first being the head: "  ranks  step\n      1  54 ms\n". Columns that
/// are empty below their head are left out. The first column is aligned `first`, the others `rest`.
/// Cells may be any text: they are shown by printable().
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       Align first,
                       Align rest,
                       const std::string& indent = "  ");

/// Returns `text` in lines of at most `width` columns, broken between words. Later lines begin with
/// `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

/// Returns `text` with a backslash before each character of `special`.
std::string backslashed(std::string_view text, std::string_view special);

/// Returns `text` as a cell of a CSV file, by RFC 4180.
std::string csv_cell(const std::string& text);

/// Returns four digits: "707 s", "54.13 ms", "0.8 us".
std::string seconds_text(double seconds);

/// Returns "81.1 %" for 0.811.
std::string percent_text(double share);

/// Returns "1 rank", "4 ranks".
std::string ranks_count_text(int ranks);

}  // namespace lockstep
