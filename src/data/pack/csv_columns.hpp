// SPDX-License-Identifier: Apache-2.0
// The roles of a table's columns.
#pragma once

#include "lockstep/data/sources.hpp"

#include <cstddef>
#include <filesystem>
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
                      const std::filesystem::path& path);

/// Returns the names of the numbers that `form` makes: "mass", "kind=red".
std::vector<std::string> number_names(const TableForm& form);

}  // namespace lockstep
