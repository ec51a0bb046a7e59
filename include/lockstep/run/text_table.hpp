// SPDX-License-Identifier: Apache-2.0
/// @file
/// Columns of text, and numbers as tables have them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Where a cell's text stands in its column.
enum class Align { left, right };

/// Rows of cells, the first being heads: "  ranks  step\n      1  54 ms\n". Columns that are empty
/// below their head are left out. The first column is aligned `first`, the others `rest`. Cells may
/// be any text: they are shown as printable() has them.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       Align first,
                       Align rest,
                       const std::string& indent = "  ");

/// `text` in lines of at most `width` columns, broken between words. Those after the first begin
/// with `indent` spaces besides.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

/// "707 s", "54.13 ms", "0.8 us": four digits.
std::string seconds_text(double seconds);

/// "81.1 %" of 0.811.
std::string percent_text(double share);

/// "1 rank", "4 ranks".
std::string ranks_count_text(int ranks);

}  // namespace lockstep
