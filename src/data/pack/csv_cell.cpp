// SPDX-License-Identifier: Apache-2.0
#include "csv_cell.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 8> no_values{
    "", "NA", "N/A", "nan", "NaN", "null", "NULL", "?"};

std::string_view sign_text(DecimalSign decimal) {
    return decimal == DecimalSign::comma ? "comma" : "point";
}

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
    cell.remove_prefix(first);
    if (first < 1 || first > 3 || cell.empty() || std::string_view(".,_ ").find(cell[0]) > 3)
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

Error CsvErrors::unusable(const std::string& why, const std::string& fix) const {
    return malformed_input(file_.path(), "a CSV file that can be packed", why, fix);
}

Error CsvErrors::bad_cell(std::size_t column,
                          const std::string& cell,
                          const char* wanted,
                          const std::string& why) const {
    const bool names_nothing = csv_.label.empty() && csv_.targets.empty() && !csv_.like;
    const char* const usual =
        names_nothing ? "all columns are features, as neither --label nor --target is given" : "";
    return Error("E239",
                 fmt::format("'{}', line {}, column {}: '{}' is not {}",
                             file_.path().string(),
                             grouped(reader_.line()),
                             columns_.name_of(column),
                             cell.substr(0, 60),
                             wanted),
                 why.empty() ? usual : why,
                 way_past(column, cell));
}

std::string CsvErrors::way_past(std::size_t column, const std::string& cell) const {
    const auto rewritten = [&](const std::string& cells, const std::string& kept) {
        return rewrite_csv_command(file_.path(), csv_.separator, cells, kept);
    };
    if (!columns_.separator.empty()) return fmt::format("give --separator {}", columns_.separator);
    const bool is_feature = std::ranges::count(columns_.features, column) > 0;
    const bool has_point = csv_.decimal == DecimalSign::point;
    const DecimalSign other = has_point ? DecimalSign::comma : DecimalSign::point;
    if (number_in<double>(cell, other)) return fmt::format("give --decimal {}", sign_text(other));
    if (const std::string sign = thousands_sign(cell); !sign.empty())
        return fmt::format("leave out the signs of thousands, ") +
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
        if (csv_.like) return by_python;
        return (is_feature ? "give --missing mean to fill such cells, or --missing drop to leave "
                             "out their records; or "
                           : "give --missing drop to leave out their records; or ") +
               by_python;
    }
    if (csv_.like || !is_feature) {
        const std::string advice = "correct that cell, or leave its record out";
        return csv_.encoding.empty() ? advice + ", " + rewritten("r", other_text(column, cell))
                                     : advice;
    }
    const bool names_nothing = csv_.label.empty() && csv_.targets.empty();
    const std::string name = columns_.key_of(column);
    // A list has commas of its own.
    const std::string word =
        name.find(',') == name.npos ? shell_word(name) : std::to_string(column + 1);
    return (names_nothing ? fmt::format("give --label {} if it is to be predicted, or ", word)
                          : std::string("give ")) +
           fmt::format("--categorical {0} to make a number of each of its texts, or --drop {0}",
                       word);
}

}  // namespace lockstep
