// SPDX-License-Identifier: Apache-2.0
// Pieces of the HTML report.
#pragma once

#include "report/report_words.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using HtmlCells = std::vector<std::string>;

/// `text` between tags or quotes of HTML; control characters become '?'.
std::string html_text(std::string_view text);

/// A paragraph of class `css`.
std::string html_paragraph(std::string_view css, std::string_view text);

/// `content` below a heading; "" where there is none.
std::string html_section(std::string_view title, const std::string& content);

/// A table that screen readers call `name`. Columns from `numbers` on are aligned to the right. A
/// long one is folded away.
std::string html_table(std::string_view name,
                       const HtmlCells& heading,
                       std::size_t numbers,
                       const std::vector<HtmlCells>& rows);

/// What the parts of bars mean, each with a note.
std::string html_legend(const std::vector<PartWord>& parts, const HtmlCells& notes);

// Sections with drawings; "" where nothing is known.
std::string html_curves(const Report& report);
std::string html_budget(const Report& report);
std::string html_heat_map(const Report& report);
std::string html_starts(const RunStatus& status);

}  // namespace lockstep
