// SPDX-License-Identifier: Apache-2.0
// Tested: data/pack/csv_source_test.cpp.
#include "csv_table.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 8> no_values{
    "", "NA", "N/A", "nan", "NaN", "null", "NULL", "?"};

// Python's csv writes the records `r` of which `kept` is true, with `cells`, to NAME.csv. Bytes of
// other encodings stay as they are.
std::string rewrite_csv_command(const fs::path& path,
                                char separator,
                                const std::string& cells,
                                const std::string& kept) {
    return fmt::format(
        "into NAME.csv: python3 -c 'import csv,re,sys; k=dict(newline=\"\",encoding=\"latin1\"); "
        "w=csv.writer(open(\"NAME.csv\",\"w\",**k),delimiter={0}); [w.writerow({1}) for j,r in "
        "enumerate(csv.reader(open(sys.argv[1],**k),delimiter={0})) if r{2}]' {3}",
        separator == '\t' ? std::string("\"\\t\"") : fmt::format("\"{}\"", separator),
        cells,
        kept,
        shell_word(path.string()));
}

// Returns the sign between groups of three digits, as in "1.234,5"; "" if there is none.
std::string thousands_sign(std::string_view cell) {
    cell = trimmed(cell);
    if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
    const auto digits = [&] {
        const std::size_t count = cell.find_first_not_of("0123456789");
        return count == cell.npos ? cell.size() : count;
    };
    const std::size_t first = digits();
    const bool is_below_one = cell.starts_with('0');
    cell.remove_prefix(first);
    if (is_below_one || first < 1 || first > 3 || cell.empty() ||
        std::string_view(".,_ ").find(cell[0]) > 3)
        return "";
    const char sign = cell[0];
    while (!cell.empty() && cell[0] == sign) {
        cell.remove_prefix(1);
        if (digits() != 3) return "";
        cell.remove_prefix(3);
    }
    if (cell.starts_with('.') || cell.starts_with(',')) cell.remove_prefix(1);
    return digits() == cell.size() ? std::string(1, sign) : "";
}

// Python's condition for records with another text there. In hexadecimal: quotes in the text would
// end the shell's.
std::string other_text(std::size_t column, const std::string& cell) {
    std::string digits;
    for (const unsigned char byte : cell) digits += fmt::format("{:02x}", byte);
    return fmt::format(" and r[{}]!=bytes.fromhex(\"{}\").decode(\"latin1\")", column, digits);
}

// Returns what to do with a table that seems to have one column; "" if it seems to have what it
// has.
std::string way_to_columns(const std::vector<std::string>& cells,
                           std::string_view separator,
                           const fs::path& path) {
    if (!separator.empty()) return fmt::format("give --separator {}", separator);
    const std::string_view first = trimmed(cells[0]);
    if (cells.size() > 1) return "";
    if (first.starts_with('#'))
        return fmt::format(
            "leave out lines that begin with '#', and give NAME.csv: grep -v '^#' {} >NAME.csv",
            shell_word(path.string()));
    if (first.find(' ') == first.npos) return "";
    return fmt::format(
        "if spaces are between columns, write commas, and give NAME.csv: sed -e 's/^ *//; s/ *$//; "
        "s/  */,/g' {} >NAME.csv",
        shell_word(path.string()));
}

std::string way_past(const CsvTable& table, std::size_t column, const std::string& cell) {
    const auto rewritten = [&](const std::string& cells, const std::string& kept) {
        return rewrite_csv_command(table.file.path(), table.csv.separator, cells, kept);
    };
    const bool begins_with_number =
        number_in<double>(trimmed(cell).substr(0, trimmed(cell).find(' ')), table.csv.decimal)
            .has_value();
    if (!table.columns.separator.empty() || (!table.columns.fix.empty() && begins_with_number))
        return table.columns.fix;
    const bool is_feature = std::ranges::count(table.columns.features, column) > 0;
    const bool has_point = table.csv.decimal == DecimalSign::point;
    const DecimalSign other = has_point ? DecimalSign::comma : DecimalSign::point;
    const std::string_view other_sign = has_point ? "comma" : "point";
    const std::string sign = thousands_sign(cell);
    const bool has_fraction = number_in<double>(cell, other).has_value();
    if (has_fraction && sign.empty()) return fmt::format("give --decimal {}", other_sign);
    if (!sign.empty())
        return (has_fraction ? fmt::format("if '{}' has a fraction, give --decimal {}; else leave "
                                           "out the signs of thousands, ",
                                           trimmed(cell),
                                           other_sign)
                             : "leave out the signs of thousands, ") +
               rewritten(fmt::format(
                             "[re.sub(r\"(?<=\\d)[{0}](?=\\d{{3}}(?!\\d))\",\"\",c) if "
                             "re.fullmatch(r\"\\s*[+-]?\\d{{1,3}}([{0}]\\d{{3}})+([.,]\\d*)?\\s*\","
                             "c) else c for c in r]",
                             sign),
                         "");
    if (has_no_value(cell)) {
        const std::string by_python = "leave out records without a value there, " +
                                      rewritten("r",
                                                fmt::format(" and r[{}].strip() not in (\"{}\")",
                                                            column,
                                                            fmt::join(no_values, "\",\"")));
        if (table.csv.like) return by_python;
        return (is_feature ? "give --missing mean to fill such cells, or --missing drop to leave "
                             "out their records; or "
                           : "give --missing drop to leave out their records; or ") +
               by_python;
    }
    if (table.csv.like || !is_feature) {
        const std::string advice = "correct that cell, or leave its record out";
        return table.csv.encoding.empty() ? advice + ", " + rewritten("r", other_text(column, cell))
                                          : advice;
    }
    const bool names_nothing = table.csv.label.empty() && table.csv.targets.empty();
    const std::string name = table.columns.key_of(column);
    // A list has commas of its own.
    const std::string word =
        name.find(',') == name.npos ? shell_word(name) : std::to_string(column + 1);
    return (names_nothing ? fmt::format("give --label {} if it is to be predicted, or ", word)
                          : std::string("give ")) +
           fmt::format("--categorical {0} to make a number of each of its texts, or --drop {0}",
                       word);
}

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
        return Error(
            "E106",
            fmt::format("'{}' has no column '{}'", path.string(), printable(wanted)),
            columns.names.empty()
                ? fmt::format("it has {} columns and no header", columns.count)
                : fmt::format("its {} columns are {}",
                              columns.count,
                              printable(fmt::format("{}", fmt::join(first, ", ")))),
            columns.fix.empty() ? "give a column's name, or its number from 1" : columns.fix);
    });
    return found;
}

// Gives each column one role.
void give_roles(CsvColumns& columns, const CsvOptions& csv, const fs::path& path) {
    std::map<std::size_t, const char*> options;  // that name a column
    const auto take = [&](const char* option, const std::string& wanted) {
        const std::size_t column = find_column(columns, wanted, path);
        if (column == no_column) return column;
        const auto [met, is_new] = options.emplace(column, option);
        check(is_new, [&] {
            return Error("E106",
                         fmt::format("column {} of '{}' is named twice",
                                     printable(columns.name_of(column)),
                                     path.string()),
                         fmt::format("--{} and --{} name it", met->second, option),
                         "drop it from one of them");
        });
        return column;
    };
    columns.label = take("label", csv.label);
    for (const std::string& target : csv.targets) columns.targets.push_back(take("target", target));
    for (const std::string& dropped : csv.drop) take("drop", dropped);
    std::set<std::size_t> texts;  // those are features
    for (const std::string& column : csv.categorical) texts.insert(take("categorical", column));
    for (std::size_t c = 0; c < columns.count; ++c) {
        if (options.contains(c) && !texts.contains(c)) continue;
        columns.features.push_back(c);
        columns.are_categories.push_back(texts.contains(c));
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

template <class Number>
std::optional<Number> number_in(std::string_view text, DecimalSign decimal) {
    text = trimmed(text);
    std::string changed;
    if (decimal == DecimalSign::comma) {
        if (text.find('.') != text.npos) return {};
        changed = text;
        std::ranges::replace(changed, ',', '.');
        text = changed;
    }
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    Number value{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size()) return {};
    if constexpr (std::is_floating_point_v<Number>)
        if (!std::isfinite(value)) return {};
    return value;
}

template std::optional<float> number_in(std::string_view, DecimalSign);
template std::optional<double> number_in(std::string_view, DecimalSign);
template std::optional<std::int64_t> number_in(std::string_view, DecimalSign);

bool has_no_value(std::string_view cell) {
    return std::ranges::find(no_values, trimmed(cell)) != no_values.end();
}

std::string_view other_separator(const std::vector<std::string>& cells) {
    const auto seen = [&](char sign) {
        std::size_t count = 0;
        for (const std::string& cell : cells)
            count += static_cast<std::size_t>(std::ranges::count(cell, sign));
        return count;
    };
    // Names may have the given sign in them; the right one is there more often.
    if (seen(';') >= cells.size()) return "semicolon";
    if (seen('\t') >= cells.size()) return "tab";
    return seen(',') >= cells.size() ? "comma" : "";
}

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
    columns.fix = way_to_columns(cells, columns.separator, path);
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
        return malformed_input(
            path,
            "a CSV file that can be packed",
            columns.count == 1 ? "its only column is the one to predict"
                               : "no column is left for features",
            columns.fix.empty() ? "give a file with features, too" : columns.fix);
    });
    return columns;
}

Error CsvTable::unusable(const std::string& why, const std::string& fix) const {
    return malformed_input(file.path(), "a CSV file that can be packed", why, fix);
}

std::string CsvTable::missing_text(std::size_t column,
                                   std::uint64_t records,
                                   std::string_view treatment) const {
    return fmt::format("column {}: {} of {} cells have no value; {}",
                       printable(columns.name_of(column)),
                       grouped(missing[column]),
                       grouped(records),
                       treatment);
}

Error CsvTable::bad_cell(std::size_t column,
                         const std::string& cell,
                         const char* wanted,
                         const std::string& why) const {
    const bool names_nothing = csv.label.empty() && csv.targets.empty() && !csv.like;
    const char* const usual =
        names_nothing ? "all columns are features, as neither --label nor --target is given" : "";
    return Error("E239",
                 fmt::format("'{}', line {}, column {}: '{}' is not {}",
                             file.path().string(),
                             grouped(reader.line()),
                             columns.name_of(column),
                             cell.substr(0, 60),
                             wanted),
                 why.empty() ? usual : why,
                 way_past(*this, column, cell));
}

}  // namespace lockstep
