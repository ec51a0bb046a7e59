// SPDX-License-Identifier: Apache-2.0
// A CSV file on its way to rows: its records, the roles of its columns, what its cells hold, what
// their owner can do about those that hold something else, and its features.
#pragma once

#include "lockstep/core/split.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <iconv.h>

namespace lockstep {

/// Reads the records of a file by RFC 4180, one after another. Cells may be quoted, with
/// separators, line breaks and doubled quotes inside; lines end with LF or CRLF; empty lines are
/// skipped; a byte order mark is ignored.
class CsvReader {
  public:
    /// `encoding` is a name of iconv's: "latin1", "cp1252", "utf-16"; "": bytes stay as they are.
    /// Errors: E103 (no such encoding).
    CsvReader(const InputFile& file, char separator, const std::string& encoding = "");

    /// Reads the next record into `cells`. Returns false at the end. Errors: E214 naming the line
    /// (a quote that never closes, text after one, a zero byte, a record of more than 16 MiB, bytes
    /// that are not of the encoding).
    bool next(std::vector<std::string>& cells);

    /// Returns the line on which the last record began, from 1.
    std::uint64_t line() const { return record_line_; }
    /// Returns the number of the file's bytes read so far.
    std::uint64_t bytes_read() const { return offset_; }

  private:
    static constexpr int end_of_file = -1;
    int peek();
    void fill();
    void recode();
    int take();
    void read_record(std::vector<std::string>& cells);
    void read_quoted(std::string& cell);
    void read_plain(std::string& cell);
    bool ends_line();
    void grow(std::string& cell, int sign);
    Error malformed(std::uint64_t line, const std::string& why) const;

    const InputFile& file_;
    int separator_;
    std::string encoding_;
    std::unique_ptr<void, decltype(&iconv_close)> converter_{nullptr, iconv_close};
    std::string left_;  // bytes of a character whose others are yet to come
    std::string buffer_;
    std::size_t at_ = 0;
    std::uint64_t offset_ = 0, line_ = 1, record_line_ = 1;
    std::size_t record_bytes_ = 0;
};

inline constexpr std::size_t no_column = SIZE_MAX;

/// Roles of the columns, which are numbered from 0.
struct CsvColumns {
    std::vector<std::string> names;  ///< empty if there is no header
    std::size_t count = 0, label = no_column, row_name = no_column;
    std::vector<std::size_t> targets, features;
    std::vector<bool> are_categories;  ///< by feature
    std::string_view separator;  ///< the right value for --separator; "" if the given one is it
    std::string fix;             ///< what to do if the first line names no columns; "" if it may

    bool is_header() const { return !names.empty(); }
    bool has_categories() const;

    /// For people: "2 ('mass')".
    std::string name_of(std::size_t column) const;

    /// The name, or the number from 1.
    std::string key_of(std::size_t column) const;
};

/// Returns the roles by `csv`; `cells` are the first line of the table. Errors: E106 (no such
/// column, or one of two roles), E214 (no features, two columns of a name, a column of csv.like is
/// missing).
CsvColumns columns_of(const std::vector<std::string>& cells,
                      const CsvOptions& csv,
                      const fs::path& path);

/// Returns the whole of a cell as a finite number, rounded once; nothing if it is none.
template <class Number>
std::optional<Number> number_in(std::string_view text, DecimalSign decimal = DecimalSign::point);

/// Whether a cell says that there is no value: it is empty, "NA", "nan", "?" and the like.
bool has_no_value(std::string_view cell);

/// Returns the word of --separator for what seems to be between columns in place of what parted the
/// `cells`; "" if nothing does.
std::string_view other_separator(const std::vector<std::string>& cells);

/// A table that is being read, and what can be wrong with it.
struct CsvTable {
    CsvTable(const fs::path& path, const CsvOptions& options)
        : csv(options), file(path), reader(file, csv.separator, csv.encoding) {}

    /// Returns E214 about the whole table; `fix` "": the usual one.
    Error unusable(const std::string& why, const std::string& fix = "") const;

    /// Returns E239 about a cell of the record that was read last, which is not what is `wanted`.
    /// Its fix depends on what the cell holds.
    Error bad_cell(std::size_t column,
                   const std::string& cell,
                   const char* wanted,
                   const std::string& why = "") const;

    const CsvOptions& csv;
    InputFile file;
    CsvReader reader;
    CsvColumns columns;                  ///< known once the first record was read
    std::vector<std::uint64_t> missing;  ///< by column: cells that lack a value

    /// Returns "column 2 ('mass'): 3 of 10 cells have no value; TREATMENT".
    std::string missing_text(std::size_t column,
                             std::uint64_t records,
                             std::string_view treatment) const;
};

struct CsvFeature {
    std::map<std::string, std::int64_t> numbers;  ///< of its categories, as they came
    std::vector<std::uint64_t> counts;            ///< of these
    double origin = 0, sum = 0;                   ///< sum of the differences to the first number
    std::uint64_t cells = 0;
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
    explicit CsvFeatures(CsvTable& table) : table_(table) {}

    /// Begins when the table's columns are known.
    void begin();

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
    std::size_t column_of(std::size_t f) const { return table_.columns.features[f]; }
    std::string name_of(std::size_t f) const;

    CsvTable& table_;
    Spool spool_;
    std::vector<CsvFeature> read_;
};

}  // namespace lockstep
