// SPDX-License-Identifier: Apache-2.0
// The roles of a table's columns, what its cells hold, and what their owner can do about those that
// hold something else.
#pragma once

#include "lockstep/core/split.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "csv_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::size_t no_column = SIZE_MAX;

/// Roles of the columns, which are numbered from 0.
struct CsvColumns {
    std::vector<std::string> names;  ///< empty if there is no header
    std::size_t count = 0, label = no_column, row_name = no_column;
    std::vector<std::size_t> targets, features;
    std::vector<bool> are_categories;  ///< by feature
    std::string_view separator;  ///< the right value for --separator; "" if the given one is it

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
    CsvColumns columns;  ///< known once the first record was read
};

}  // namespace lockstep
