// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "column.hpp"
#include "csv_cell.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Returns true if a column that the caller named stands there. What can be a column's number is
// that.
bool has_named_column(const std::vector<std::string>& cells, const CsvOptions& csv) {
    std::vector<std::string> wanted{csv.label, csv.row_names};
    for (const auto* list : {&csv.targets, &csv.drop, &csv.categorical})
        wanted.insert(wanted.end(), list->begin(), list->end());
    if (csv.like)
        for (const auto* list : {&csv.like->columns, &csv.like->table.columns})
            wanted.insert(wanted.end(), list->begin(), list->end());
    return std::ranges::any_of(wanted, [&](const std::string& name) {
        const auto number = parse_integer(name);
        const bool may_be_number = number && *number >= 1 && *number <= std::ssize(cells);
        return !name.empty() && !may_be_number &&
               std::ranges::find(cells, name, trimmed) != cells.end();
    });
}

bool has_header(const std::vector<std::string>& cells,
                const CsvOptions& csv,
                const fs::path& path) {
    if (csv.header != Header::guess) return csv.header == Header::yes;
    const bool has_number = std::ranges::any_of(cells, [&](const std::string& cell) {
        return number_in<double>(cell, csv.decimal).has_value();
    });
    if (!has_number || has_named_column(cells, csv)) return true;
    if (!csv.like)
        once(Level::info,
             "'{}': its first line has a number, so that it is taken for a sample; --header yes "
             "if it names the columns",
             path.string());
    return false;
}

std::size_t named_column(const CsvColumns& columns, const std::string& name) {
    const auto found = std::ranges::find(columns.names, name);
    return found == columns.names.end() ? no_column
                                        : static_cast<std::size_t>(found - columns.names.begin());
}

std::size_t numbered_column(const CsvColumns& columns, const std::string& text) {
    const auto number = parse_integer(text);
    const bool is_there =
        number && *number >= 1 && static_cast<std::uint64_t>(*number) <= columns.count;
    return is_there ? static_cast<std::size_t>(*number - 1) : no_column;
}

std::size_t find_column(const CsvColumns& columns,
                        const std::string& wanted,
                        const fs::path& path) {
    if (wanted.empty()) return no_column;
    std::size_t found = named_column(columns, wanted);
    if (found == no_column) found = numbered_column(columns, wanted);
    check(found != no_column, [&] {
        const auto first =
            std::span(columns.names).first(std::min<std::size_t>(columns.names.size(), 20));
        return Error("E106",
                     fmt::format("'{}' has no column '{}'", path.string(), printable(wanted)),
                     columns.names.empty()
                         ? fmt::format("it has {} columns and no header", columns.count)
                         : fmt::format("its {} columns are {}",
                                       columns.count,
                                       printable(fmt::format("{}", fmt::join(first, ", ")))),
                     columns.separator.empty()
                         ? "give a column's name, or its number from 1"
                         : fmt::format("give --separator {}", columns.separator));
    });
    return found;
}

// Gives each column one role.
class RolesGiven {
  public:
    RolesGiven(const CsvColumns& columns, const fs::path& path) : columns_(columns), path_(path) {}

    std::size_t take(const char* option, const std::string& wanted) {
        const std::size_t column = find_column(columns_, wanted, path_);
        if (column == no_column) return column;
        const auto [met, is_new] = taken_.emplace(column, option);
        check(is_new, [&] {
            return Error("E106",
                         fmt::format("column {} of '{}' is named twice",
                                     printable(columns_.name_of(column)),
                                     path_.string()),
                         fmt::format("--{} and --{} name it", met->second, option),
                         "drop it from one of them");
        });
        return column;
    }
    bool has(std::size_t column) const { return taken_.contains(column); }

  private:
    const CsvColumns& columns_;
    const fs::path& path_;
    std::map<std::size_t, const char*> taken_;
};

void give_roles(CsvColumns& columns, const CsvOptions& csv, const fs::path& path) {
    RolesGiven roles(columns, path);
    columns.label = roles.take("label", csv.label);
    for (const std::string& target : csv.targets)
        columns.targets.push_back(roles.take("target", target));
    for (const std::string& dropped : csv.drop) roles.take("drop", dropped);
    RolesGiven texts = roles;  // those are features
    for (const std::string& column : csv.categorical) texts.take("categorical", column);
    for (std::size_t c = 0; c < columns.count; ++c) {
        if (roles.has(c)) continue;
        columns.features.push_back(c);
        columns.are_categories.push_back(texts.has(c));
    }
}

// By their numbers if all of the training table are there, else in their order.
std::vector<std::size_t> places_without_names(const CsvColumns& columns,
                                              const std::vector<std::string>& wanted,
                                              const Field& like,
                                              const fs::path& path) {
    std::vector<std::size_t> places, others;
    for (std::size_t c = 0; c < columns.count; ++c)
        if (c != columns.row_name && c != columns.label &&
            std::ranges::find(columns.targets, c) == columns.targets.end())
            others.push_back(c);
    const std::size_t needed =
        wanted.empty() ? static_cast<std::size_t>(like.shape.at(0)) : wanted.size();
    if (others.size() == needed) return others;
    for (const std::string& column : wanted) places.push_back(numbered_column(columns, column));
    const bool are_numbered = !wanted.empty() && columns.count == like.table.width &&
                              std::ranges::find(places, no_column) == places.end();
    check(are_numbered, [&] {
        return malformed_input(
            path,
            "a table like that of the training data",
            fmt::format("it has {} columns, and the model takes {}; without names in the first "
                        "line of both tables nobody knows which",
                        others.size(),
                        needed),
            "give these columns alone, in their order");
    });
    return places;
}

void say_left_out(const CsvColumns& columns, const fs::path& path) {
    std::vector<std::string> others;
    for (std::size_t c = 0; c < columns.count; ++c)
        if (std::ranges::find(columns.features, c) == columns.features.end() &&
            std::ranges::find(columns.targets, c) == columns.targets.end() && c != columns.label &&
            c != columns.row_name)
            others.push_back(printable(columns.names[c]));
    if (!others.empty())
        once(Level::info,
             "'{}': columns that are no features are left out: {}",
             path.string(),
             fmt::join(others, ", "));
}

// In the order of the training table's, so that this table's does not matter.
void follow(CsvColumns& columns, const Field& like, const fs::path& path) {
    const std::vector<std::string>& wanted =
        like.table.width > 0 ? like.table.columns : like.columns;
    for (const std::string& name : wanted) columns.features.push_back(named_column(columns, name));
    const auto lacking = std::ranges::find(columns.features, no_column);
    const bool has_names = columns.is_header() && !wanted.empty();
    const bool are_numbers = std::ranges::all_of(
        wanted, [](const std::string& name) { return parse_integer(name).has_value(); });
    if (!has_names || (lacking != columns.features.end() && are_numbers)) {
        columns.features = places_without_names(columns, wanted, like, path);
    } else {
        check(lacking == columns.features.end(), [&] {
            const auto which = static_cast<std::size_t>(lacking - columns.features.begin());
            return Error(
                "E214",
                fmt::format("'{}' has no column '{}'", path.string(), printable(wanted[which])),
                fmt::format("its columns are {}", fmt::join(columns.names, ", ")),
                "add it, or give it that name in the first line of the file");
        });
        say_left_out(columns, path);
    }
    for (std::size_t c = 0; c < columns.features.size(); ++c)
        columns.are_categories.push_back(!like.table.categories.empty() &&
                                         !like.table.categories.at(c).empty());
}

// Whoever uses a trained model finds its columns by these.
void check_different(const CsvColumns& columns, const fs::path& path) {
    std::map<std::string_view, std::size_t> first;
    for (std::size_t c = 0; c < columns.names.size(); ++c) {
        const auto [met, is_new] = first.emplace(columns.names[c], c);
        check(is_new, [&] {
            return Error("E214",
                         fmt::format("'{}' has two columns with the same name, '{}': {} and {}",
                                     path.string(),
                                     printable(columns.names[c]),
                                     met->second + 1,
                                     c + 1),
                         "a trained model finds its columns by their names",
                         "give one of them another name, in the first line of the file");
        });
    }
}

}  // namespace

bool CsvColumns::has_categories() const {
    return std::ranges::find(are_categories, true) != are_categories.end();
}

std::string CsvColumns::key_of(std::size_t column) const {
    return names.empty() ? std::to_string(column + 1) : names[column];
}

std::string CsvColumns::name_of(std::size_t column) const {
    return names.empty() ? fmt::format("{}", column + 1)
                         : fmt::format("{} ('{}')", column + 1, names[column]);
}

CsvColumns columns_of(const std::vector<std::string>& cells,
                      const CsvOptions& csv,
                      const fs::path& path) {
    CsvColumns columns;
    columns.count = cells.size();
    columns.separator = other_separator(cells);
    if (has_header(cells, csv, path)) {
        columns.names = cells;
        for (std::string& name : columns.names) name = trimmed(name);
    }
    columns.row_name = find_column(columns, csv.row_names, path);
    check_different(columns, path);
    if (csv.like) {
        columns.label = find_column(columns, csv.label, path);
        for (const std::string& target : csv.targets)
            columns.targets.push_back(find_column(columns, target, path));
        follow(columns, *csv.like, path);
    } else {
        give_roles(columns, csv, path);
    }
    check(!columns.features.empty(), [&] {
        return malformed_input(path,
                               "a CSV file that can be packed",
                               columns.count == 1 ? "its only column is the one to predict"
                                                  : "no column is left for features",
                               columns.separator.empty()
                                   ? "give a file with features, too"
                                   : fmt::format("give --separator {}", columns.separator));
    });
    return columns;
}

}  // namespace lockstep
