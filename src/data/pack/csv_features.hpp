// SPDX-License-Identifier: Apache-2.0
// The features of a table: numbers, texts that become a number each, and cells that are filled.
#pragma once

#include "column.hpp"
#include "csv_table.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct CsvFeature {
    std::map<std::string, std::int64_t> numbers;  ///< of its categories, as they came
    std::vector<std::uint64_t> counts;            ///< of these
    double origin = 0, sum = 0;                   ///< sum of the differences to the first number
    std::uint64_t cells = 0, missing = 0;
    double least = 0, most = 0;  ///< of the numbers as they are in the table

    double mean() const { return origin + sum / static_cast<double>(cells); }
};

/// Texts that were numbered as they came: `places` has for each number the place among `texts`.
struct SortedTexts {
    std::vector<std::string> texts;
    std::vector<std::int64_t> places;
};

SortedTexts sorted_texts(const std::map<std::string, std::int64_t>& numbers);

/// Takes a table record by record. A row is stored by column: a category's number, NaN for what is
/// to be filled. Categories and means are known only at the end, so that finish() gives a
/// transform.
class CsvFeatures {
  public:
    explicit CsvFeatures(const CsvTable& table) : table_(table) {}

    /// Begins when the table's columns are known.
    void begin();

    /// Counts the features of a record that lack a value; returns whether there are any.
    bool lack_value(const std::vector<std::string>& cells);

    /// Returns the reason why each record lacks a value: E214, naming an empty column.
    Error nothing_left(std::uint64_t records) const;

    /// Adds a row. Errors: E239.
    void add(const std::vector<std::string>& cells);

    /// Returns the field, and its column of `rows` rows.
    Field field() const;
    Column finish(const Field& field, std::uint64_t rows);

    /// Returns a line for each column with cells that lack a value, and for each of categories.
    std::vector<std::string> lines(std::uint64_t records) const;

    /// Warns of columns whose numbers f32 cannot tell apart.
    void warn_of_lost_digits() const;

  private:
    template <class Number>
    void add_row(const std::vector<std::string>& cells);
    template <class Number>
    Number number_of(std::size_t f, const std::string& cell);
    std::int64_t category_of(std::size_t f, const std::string& cell);
    std::vector<double> fills_of(std::size_t f) const;
    Error no_value_in(std::size_t f, const std::string& hence) const;
    void check_names(const std::vector<std::string>& names) const;
    TableForm form() const;
    std::string treatment(std::size_t f) const;

    const CsvTable& table_;
    Spool spool_;
    std::vector<CsvFeature> read_;
};

}  // namespace lockstep
