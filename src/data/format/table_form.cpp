// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "manifest_fields.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> missing_names{"error", "drop", "mean"};
constexpr std::array<std::string_view, 2> decimal_names{"point", "comma"};

std::size_t letters_of(const std::vector<std::string>& names) {
    std::size_t letters = 0;
    for (const std::string& name : names) letters += name.size();
    return letters;
}

bool fits_shape(const TableForm& form, std::uint64_t elements) {
    std::uint64_t numbers = form.categories.empty() ? form.columns.size() : 0;
    std::size_t letters = form.encoding.size() + letters_of(form.columns);
    for (const auto& texts : form.categories) {
        numbers += std::max<std::size_t>(texts.size(), 1);
        letters += letters_of(texts);
        if (std::ranges::adjacent_find(texts, std::ranges::greater_equal()) != texts.end())
            return false;
    }
    const bool has_each = form.categories.empty() || form.categories.size() == form.columns.size();
    const auto is_finite = [](double fill) { return std::isfinite(fill); };
    return numbers == elements && has_each && form.width >= form.columns.size() &&
           letters <= 2 * most_column_bytes && std::ranges::all_of(form.fills, is_finite) &&
           form.fills.size() == (form.missing == Missing::mean ? numbers : 0);
}

}  // namespace

void describe(Record& record, TableForm& form) {
    record.count("width", form.width);
    record.field("columns", form.columns);
    record.sparse("categories", form.categories);
    record.field("missing", form.missing, missing_names);
    record.sparse("fills", form.fills);
    record.field("decimal", form.decimal, decimal_names);
    record.sparse("encoding", form.encoding);
}

bool has_table_of_its_shape(const Field& field) {
    if (field.columns.empty() && field.table.width == 0) return true;
    if (field.shape.size() > 1) return false;
    const auto elements = static_cast<std::uint64_t>(field.shape.empty() ? 1 : field.shape[0]);
    const bool are_named =
        field.columns.empty() ||
        (field.columns.size() == elements && letters_of(field.columns) <= most_column_bytes);
    return are_named && (field.table.width == 0 || fits_shape(field.table, elements));
}

}  // namespace lockstep
