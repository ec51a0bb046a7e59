// SPDX-License-Identifier: Apache-2.0
#include "report/html_parts.hpp"

#include "lockstep/core/log.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t open_table_rows = 16;

enum class CellKind { heading, value };

std::string html_row(const HtmlCells& cells, CellKind kind, std::size_t numbers) {
    const std::string_view tag = kind == CellKind::heading ? "th scope=\"col\"" : "td";
    std::string row = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
        row += fmt::format("<{}{}>{}</{}>",
                           tag,
                           i < numbers ? "" : " class=\"n\"",
                           html_text(cells[i]),
                           tag.substr(0, 2));
    return row + "</tr>\n";
}

}  // namespace

std::string html_text(std::string_view text) {
    std::string out;
    for (const char c : printable(text)) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string html_paragraph(std::string_view css, std::string_view text) {
    return fmt::format("<p class=\"{}\">{}</p>\n", css, html_text(text));
}

std::string html_section(std::string_view title, const std::string& content) {
    if (content.empty()) return "";
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_text(title), content);
}

std::string html_table(std::string_view name,
                       const HtmlCells& heading,
                       std::size_t numbers,
                       const std::vector<HtmlCells>& rows) {
    std::string table = fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"{}\"><table>\n<thead>{}</thead>\n<tbody>\n",
        html_text(name),
        html_row(heading, CellKind::heading, numbers));
    for (const HtmlCells& row : rows) table += html_row(row, CellKind::value, numbers);
    table += "</tbody></table></div>\n";
    if (rows.size() <= open_table_rows) return table;
    return fmt::format("<details><summary>{}, {} rows</summary>\n{}</details>\n",
                       html_text(name),
                       rows.size(),
                       table);
}

std::string html_legend(const std::vector<PartWord>& parts, const HtmlCells& notes) {
    std::string legend = "<ul class=\"legend\">\n";
    for (std::size_t i = 0; i < parts.size(); ++i)
        legend +=
            fmt::format("<li><span class=\"key k-{}\" aria-hidden=\"true\">{}</span>{} {}</li>\n",
                        parts[i].css,
                        parts[i].letter,
                        html_text(parts[i].name),
                        html_text(notes[i]));
    return legend + "</ul>\n";
}

}  // namespace lockstep
