// SPDX-License-Identifier: Apache-2.0
// Tested: data/pack/csv_source_test.cpp, e2e/alone_test.cpp.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "csv_table.hpp"
#include "format/labels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_categories = 10'000;

// The numbers of a stored cell: itself, or one for each category.
struct CellNumbers {
    std::vector<std::int64_t> places;  // of categories, by the stored number; empty: a number
    std::vector<double> fills;         // one for each number; empty: nothing is filled
};

template <class Number>
RowTransform numbers_of_cells(std::vector<CellNumbers> cells) {
    return [cells = std::move(cells)](std::span<const std::byte> stored, std::span<std::byte> out) {
        std::size_t at = 0;
        const auto put = [&](Number number) {
            std::memcpy(out.data() + at++ * sizeof number, &number, sizeof number);
        };
        for (std::size_t c = 0; c < cells.size(); ++c) {
            const auto value = element_at<Number>(stored, c);
            const std::vector<std::int64_t>& places = cells[c].places;
            if (std::isnan(value)) {
                for (const double fill : cells[c].fills) put(static_cast<Number>(fill));
            } else if (places.empty()) {
                put(value);
            } else {
                const std::int64_t own = places.at(static_cast<std::size_t>(value));
                for (std::int64_t place = 0; place < std::ssize(places); ++place)
                    put(place == own ? 1 : 0);
            }
        }
    };
}

// The names of the numbers that `form` makes: "mass", "kind=red".
std::vector<std::string> number_names(const TableForm& form) {
    std::vector<std::string> names;
    for (std::size_t c = 0; c < form.columns.size(); ++c) {
        if (form.categories.empty() || form.categories[c].empty())
            names.push_back(form.columns[c]);
        else
            for (const std::string& text : form.categories[c])
                names.push_back(form.columns[c] + "=" + text);
    }
    return names;
}

}  // namespace

SortedTexts sorted_texts(const std::map<std::string, std::int64_t>& numbers) {
    SortedTexts sorted{{}, std::vector<std::int64_t>(numbers.size())};
    for (const auto& [text, met] : numbers) {
        sorted.places[static_cast<std::size_t>(met)] = std::ssize(sorted.texts);
        sorted.texts.push_back(text);
    }
    return sorted;
}

void CsvFeatures::begin() {
    read_.resize(table_.columns.features.size());
    if (!table_.csv.like || table_.csv.like->table.categories.empty()) return;
    for (std::size_t f = 0; f < read_.size(); ++f)
        for (const std::string& text : table_.csv.like->table.categories[f])
            read_[f].numbers.emplace(text, std::ssize(read_[f].numbers));
}

void CsvFeatures::add(const std::vector<std::string>& cells) {
    if (table_.csv.type == ElementType::f64)
        add_row<double>(cells);
    else
        add_row<float>(cells);
}

template <class Number>
void CsvFeatures::add_row(const std::vector<std::string>& cells) {
    for (std::size_t f = 0; f < read_.size(); ++f) {
        const auto number = number_of<Number>(f, cells[column_of(f)]);
        spool_.append(std::as_bytes(std::span(&number, 1)));
    }
}

template <class Number>
Number CsvFeatures::number_of(std::size_t f, const std::string& cell) {
    CsvFeature& read = read_[f];
    if (table_.csv.missing == Missing::mean && has_no_value(cell)) {
        ++table_.missing[column_of(f)];
        return std::numeric_limits<Number>::quiet_NaN();
    }
    if (table_.columns.are_categories[f]) return static_cast<Number>(category_of(f, cell));
    const auto value = number_in<Number>(cell, table_.csv.decimal);
    if (!value) throw table_.bad_cell(column_of(f), cell, "a finite number");
    if (read.cells++ == 0) read.origin = double{*value};
    read.sum += double{*value} - read.origin;
    // What is stored of such numbers may be one and the same.
    constexpr double large = 1e6;
    const double exact = std::abs(*value) < large
                             ? double{*value}
                             : number_in<double>(cell, table_.csv.decimal).value();
    if (read.cells == 1) read.least = read.most = exact;
    read.least = std::min(read.least, exact);
    read.most = std::max(read.most, exact);
    return *value;
}

std::int64_t CsvFeatures::category_of(std::size_t f, const std::string& cell) {
    CsvFeature& read = read_[f];
    if (has_no_value(cell)) throw table_.bad_cell(column_of(f), cell, "a category");
    ++read.cells;
    const std::string text(trimmed(cell));
    const auto found = read.numbers.find(text);
    if (table_.csv.like) {
        if (found != read.numbers.end()) return found->second;
        throw table_.bad_cell(column_of(f),
                              cell,
                              "a category of the training data",
                              "these are " + listed(table_.csv.like->table.categories[f]));
    }
    if (found != read.numbers.end()) {
        ++read.counts[static_cast<std::size_t>(found->second)];
        return found->second;
    }
    check(std::ssize(read.numbers) < most_categories, [&] {
        return table_.unusable(fmt::format("column {} has more than {} different texts, each a "
                                           "number of every sample",
                                           name_of(f),
                                           grouped(most_categories)),
                               fmt::format("leave it out: --drop {}", column_of(f) + 1));
    });
    read.counts.push_back(1);
    return read.numbers.emplace(text, std::ssize(read.numbers)).first->second;
}

Error CsvFeatures::nothing_left(std::uint64_t records) const {
    for (std::size_t f = 0; f < read_.size(); ++f)
        if (table_.missing[column_of(f)] == records) return no_value_in(f, "");
    return table_.unusable("each of its records lacks a value");
}

Error CsvFeatures::no_value_in(std::size_t f, const std::string& hence) const {
    return table_.unusable(fmt::format("column {} has no value at all{}", name_of(f), hence),
                           fmt::format("leave it out: --drop {}", column_of(f) + 1));
}

// The mean of each of a column's numbers, in the order of the field.
std::vector<double> CsvFeatures::fills_of(std::size_t f) const {
    const CsvFeature& read = read_[f];
    check(read.cells > 0, [&] { return no_value_in(f, ", hence no mean"); });
    if (!table_.columns.are_categories[f]) return {read.mean()};
    std::vector<double> shares;
    for (const auto& [text, met] : read.numbers)
        shares.push_back(static_cast<double>(read.counts[static_cast<std::size_t>(met)]) /
                         static_cast<double>(read.cells));
    return shares;
}

TableForm CsvFeatures::form() const {
    TableForm form{.width = table_.columns.count,
                   .missing = table_.csv.missing,
                   .decimal = table_.csv.decimal,
                   .encoding = table_.csv.encoding};
    for (std::size_t f = 0; f < read_.size(); ++f) {
        form.columns.push_back(table_.columns.key_of(column_of(f)));
        if (table_.columns.has_categories())
            form.categories.push_back(sorted_texts(read_[f].numbers).texts);
        if (table_.csv.missing != Missing::mean) continue;
        const std::vector<double> fills = fills_of(f);
        form.fills.insert(form.fills.end(), fills.begin(), fills.end());
    }
    return form;
}

// A column may have the name that a category of another gives its number.
void CsvFeatures::check_names(const std::vector<std::string>& names) const {
    std::vector<std::string> sorted = names;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    check(twice == sorted.end(), [&] {
        return table_.unusable(
            fmt::format("two features are called '{}', a column and a category's number",
                        printable(*twice)),
            "give the column another name, in the first line of the file");
    });
}

Field CsvFeatures::field() const {
    Field field{.name = "features", .type = table_.csv.type};
    std::int64_t width = 0;
    for (const CsvFeature& read : read_)
        width += std::max<std::int64_t>(std::ssize(read.numbers), 1);
    field.shape = {width};
    if (table_.csv.like) {
        field.table = table_.csv.like->table;
        field.columns = table_.csv.like->columns;
        return field;
    }
    TableForm form = this->form();
    const bool is_plain = table_.columns.is_header() || table_.columns.count == read_.size();
    const bool are_names_enough =
        is_plain && !table_.columns.has_categories() && table_.csv.missing == Missing::error &&
        table_.csv.decimal == DecimalSign::point && table_.csv.encoding.empty();
    if (table_.columns.is_header() || table_.columns.has_categories())
        field.columns = number_names(form);
    check_names(field.columns);
    if (!are_names_enough) field.table = std::move(form);
    std::size_t bytes = 0;
    for (const std::string& name : field.columns) bytes += name.size();
    if (bytes <= most_column_bytes) return field;
    const std::string lengths = fmt::format("the names of the columns are {} long, more than {}",
                                            bytes_text(bytes),
                                            bytes_text(most_column_bytes));
    check(are_names_enough, [&] {
        return table_.unusable(lengths + ", so that tables of new data could not follow them");
    });
    field.columns.clear();
    once(Level::warn,
         "{}: they are not kept, so that columns in another order go unnoticed",
         lengths);
    return field;
}

Column CsvFeatures::finish(const Field& field, std::uint64_t rows) {
    const std::size_t stored = read_.size() * element_bytes(field.type);
    Column column{{{spool_.finish(), 0, rows, stored}}, stored};
    const bool has_gaps = table_.csv.missing == Missing::mean &&
                          std::ranges::max(table_.missing) > 0;  // no other cells may lack one
    if (!has_gaps && !table_.columns.has_categories()) return column;
    std::vector<CellNumbers> cells;
    auto fill = field.table.fills.begin();
    for (const CsvFeature& read : read_) {
        cells.push_back({sorted_texts(read.numbers).places, {}});
        if (field.table.fills.empty()) continue;
        const auto end = fill + std::max<std::ptrdiff_t>(std::ssize(read.numbers), 1);
        cells.back().fills.assign(fill, end);
        fill = end;
    }
    column.transform = field.type == ElementType::f64 ? numbers_of_cells<double>(std::move(cells))
                                                      : numbers_of_cells<float>(std::move(cells));
    return column;
}

void CsvFeatures::warn_of_lost_digits() const {
    constexpr double few_steps = 4096;
    if (table_.csv.type != ElementType::f32) return;
    for (std::size_t f = 0; f < read_.size(); ++f) {
        const CsvFeature& read = read_[f];
        const auto largest =
            static_cast<float>(std::max(std::abs(read.least), std::abs(read.most)));
        const double step = std::nextafter(largest, std::numeric_limits<float>::max()) - largest;
        const double range = read.most - read.least;
        if (table_.columns.are_categories[f] || range == 0 || range >= few_steps * step) continue;
        once(Level::warn,
             "column {}: from {:.10g} to {:.10g} f32 has steps of {:.3g}, so that numbers become "
             "equal; --real f64 keeps them apart",
             name_of(f),
             read.least,
             read.most,
             step);
    }
}

std::string CsvFeatures::name_of(std::size_t f) const {
    return printable(table_.columns.name_of(column_of(f)));
}

std::string CsvFeatures::treatment(std::size_t f) const {
    if (table_.csv.missing == Missing::drop) return "their records are left out";
    if (table_.columns.are_categories[f]) return "they get each category's share of the others";
    if (table_.csv.like) return fmt::format("they get the training data's mean");
    return fmt::format("they get the mean of the others, {:.6g}", fills_of(f).front());
}

std::vector<std::string> CsvFeatures::lines(std::uint64_t records) const {
    std::vector<std::string> lines;
    for (std::size_t f = 0; f < read_.size(); ++f) {
        if (table_.columns.are_categories[f] && !table_.csv.like)
            lines.push_back(fmt::format("column {}: {} text(s), a number each: {}",
                                        name_of(f),
                                        read_[f].numbers.size(),
                                        listed(sorted_texts(read_[f].numbers).texts)));
        if (table_.missing[column_of(f)] > 0)
            lines.push_back(table_.missing_text(column_of(f), records, treatment(f)));
    }
    return lines;
}

}  // namespace lockstep
