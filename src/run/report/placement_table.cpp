// SPDX-License-Identifier: Apache-2.0
// Rank 0 prints the placement into its log, as `lockstep map` does:
//
//     2 nodes | 16 ranks x 13 threads
//     rank  node   local  cores   threads  comm  numa  gpu  path  nic
//     0     node0  0      0-13    13       13    0     -    -     -
//     * bound by the launcher, and kept
#include "lockstep/core/error.hpp"
#include "lockstep/core/split.hpp"

#include "report/report_parts.hpp"

#include <algorithm>
#include <span>

namespace lockstep {
namespace {

constexpr std::size_t most_bytes = std::size_t{4} << 20;  // the table is near the log's beginning

std::string beginning_of(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    std::string text(std::min<std::uint64_t>(file_stamp(path).bytes, most_bytes), '\0');
    text.resize(read_at(file.value(), std::as_writable_bytes(std::span(text)), 0, path));
    return text;
}

/// Returns the begins of a heading's words.
std::vector<std::size_t> word_places(const std::string& line) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < line.size(); ++i)
        if (line[i] != ' ' && (i == 0 || line[i - 1] == ' ')) places.push_back(i);
    return places;
}

std::vector<std::string> cells_of(const std::string& line, const std::vector<std::size_t>& places) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < places.size(); ++i) {
        const std::size_t end = i + 1 < places.size() ? places[i + 1] : line.size();
        std::string cell =
            places[i] < line.size() ? line.substr(places[i], end - places[i]) : std::string();
        cell.erase(cell.find_last_not_of(' ') + 1);
        cells.push_back(cell.empty() ? "-" : cell);
    }
    return cells;
}

/// A rank, and more: lines of the log begin with a date.
bool is_row(const std::string& line) {
    const std::size_t end = line.find_first_not_of("0123456789");
    return end > 0 && end != line.npos && line[end] == ' ';
}

/// Leaves out columns in which no rank has anything.
void drop_empty(PlacementTable& table) {
    for (std::size_t i = table.columns.size(); i-- > 0;) {
        if (!std::ranges::all_of(table.rows, [&](const auto& row) { return row[i] == "-"; }))
            continue;
        const auto at = static_cast<std::ptrdiff_t>(i);
        table.columns.erase(table.columns.begin() + at);
        for (auto& row : table.rows) row.erase(row.begin() + at);
    }
}

}  // namespace

PlacementTable read_placement(const fs::path& log) try {
    const std::vector<std::string> lines = split(beginning_of(log), '\n');
    const auto heading = std::ranges::find_if(lines, [](const std::string& line) {
        return line.starts_with("rank  node ") && line.find(" cores ") != line.npos;
    });
    PlacementTable table;
    if (heading == lines.end()) return table;
    const auto places = word_places(*heading);
    table.columns = cells_of(*heading, places);
    if (heading != lines.begin()) table.notes.push_back(heading[-1]);
    auto line = heading + 1;
    for (; line != lines.end() && is_row(*line); ++line)
        table.rows.push_back(cells_of(*line, places));
    for (; line != lines.end() && (line->starts_with("* ") || line->starts_with("warning: "));
         ++line)
        table.notes.push_back(*line);
    drop_empty(table);
    return table;
} catch (const Error&) {
    return {};
}

}  // namespace lockstep
