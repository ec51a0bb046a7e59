// SPDX-License-Identifier: Apache-2.0
// Pieces of the HTML report.
#pragma once

#include "report/report_words.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using HtmlCells = std::vector<std::string>;

/// Returns `text` for use between tags or quotes of HTML; control characters become '?'.
std::string html_text(std::string_view text);

/// Returns a paragraph of class `css`.
std::string html_paragraph(std::string_view css, std::string_view text);

/// Returns `content` below a heading; "" if it is empty.
std::string html_section(std::string_view title, const std::string& content);

/// Returns a table that screen readers call `name`; its first row is its heading. Columns from
/// `numbers` on are aligned to the right. A long table is collapsed.
std::string html_table(std::string_view name, std::size_t numbers, std::span<const HtmlCells> rows);

/// Returns a legend of the parts of bars, each with a note.
std::string html_legend(const std::vector<PartWord>& parts, const HtmlCells& notes);

// Returns sections with drawings; "" without data.
std::string html_curves(const Report& report);
std::string html_budget(const Report& report);
std::string html_heat_map(const Report& report);
std::string html_starts(const RunStatus& status);

}  // namespace lockstep
