// SPDX-License-Identifier: Apache-2.0
// Tested: data/pack/csv_source_test.cpp.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "csv_table.hpp"
#include "format/labels.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Turns records into rows of two spools: features, and labels or targets.
class CsvImport {
  public:
    CsvImport(const fs::path& path, const CsvOptions& csv, const SourceOptions& options)
        : table_(path, csv), options_(options), features_(table_) {}

    std::unique_ptr<RowSource> run() {
        std::vector<std::string> cells;
        check(table_.reader.next(cells), [&] { return table_.unusable("it has no records"); });
        table_.columns = columns_of(cells, table_.csv, table_.file.path());
        features_.begin();
        learned_ = table_.columns.targets;
        if (table_.columns.label != no_column) learned_.push_back(table_.columns.label);
        missing_.resize(learned_.size());
        bool has_record = !table_.columns.is_header();
        while (has_record || table_.reader.next(cells)) {
            has_record = false;
            add(cells);
            if (options_.report && records_ % 4096 == 0)
                options_.report(table_.reader.bytes_read(), table_.file.bytes());
        }
        check(records_ > 0, [&] { return table_.unusable("it has a header and no records"); });
        if (rows_ == 0) throw features_.nothing_left(records_);
        auto made = source();
        say_what_was_done();
        return made;
    }

  private:
    void add(const std::vector<std::string>& cells) {
        if (cells.size() != table_.columns.count) {
            const std::string_view separator = table_.columns.separator.empty()
                                                   ? other_separator(cells)
                                                   : table_.columns.separator;
            throw table_.unusable(
                fmt::format("line {} has {} cells; the first has {}",
                            grouped(table_.reader.line()),
                            cells.size(),
                            table_.columns.count),
                separator.empty() ? "" : fmt::format("give --separator {}", separator));
        }
        ++records_;
        if (table_.csv.missing == Missing::drop && lacks_value(cells)) return;
        features_.add(cells);
        for (const std::size_t target : table_.columns.targets)
            if (table_.csv.type == ElementType::f64)
                add_target<double>(target, cells[target]);
            else
                add_target<float>(target, cells[target]);
        if (table_.columns.label != no_column) add_label(cells[table_.columns.label]);
        if (table_.columns.row_name != no_column)
            row_names_.push_back(cells[table_.columns.row_name]);
        ++rows_;
    }

    // All such cells of a record count.
    bool lacks_value(const std::vector<std::string>& cells) {
        bool lacks = features_.lack_value(cells);
        for (std::size_t i = 0; i < learned_.size(); ++i)
            if (has_no_value(cells[learned_[i]])) {
                ++missing_[i];
                lacks = true;
            }
        return lacks;
    }

    template <class Number>
    void add_target(std::size_t column, const std::string& cell) {
        const auto value = number_in<Number>(cell, table_.csv.decimal);
        if (!value) throw table_.bad_cell(column, cell, "a finite number");
        append(*value);
    }

    // The first label decides whether they are numbers or names.
    void add_label(const std::string& cell) {
        const auto number = number_in<std::int64_t>(cell);
        if (rows_ == 0) labels_are_names_ = !number;
        if (!labels_are_names_) {
            if (!number)
                throw table_.bad_cell(
                    table_.columns.label, cell, "a whole number, as the first label is");
            return append(*number);
        }
        const std::string name(trimmed(cell));
        if (name.empty()) throw table_.bad_cell(table_.columns.label, cell, "a name");
        const auto next = static_cast<std::int64_t>(classes_.size());
        append(classes_.emplace(name, next).first->second);
        if (std::ssize(classes_) > max_classes)
            throw table_.unusable(fmt::format("column {} has more than {} different names",
                                              table_.columns.name_of(table_.columns.label),
                                              grouped(max_classes)));
    }

    template <class Number>
    void append(const Number& value) {
        answers_.append(std::as_bytes(std::span(&value, 1)));
    }

    std::unique_ptr<RowSource> source() {
        std::vector<Field> fields{features_.field()};
        std::vector<Column> columns{features_.finish(fields[0], rows_)};
        if (!learned_.empty()) {
            const bool is_label = table_.columns.label != no_column;
            Field field{.name = is_label ? "labels" : "targets",
                        .type = is_label ? ElementType::i64 : table_.csv.type};
            if (learned_.size() > 1) field.shape = {std::ssize(learned_)};
            for (const std::size_t column : learned_)
                if (table_.columns.is_header())
                    field.columns.push_back(table_.columns.names[column]);
            const std::size_t bytes = field.bytes_per_sample();
            columns.push_back({{{answers_.finish(), 0, rows_, bytes}}, bytes});
            if (labels_are_names_) number_names_of_classes(field, columns[1]);
            fields.push_back(std::move(field));
        }
        auto made = std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
        made->name_rows(std::move(row_names_));
        return made;
    }

    // Names were numbered as they came; classes are numbered as they sort.
    void number_names_of_classes(Field& field, Column& column) const {
        SortedTexts sorted = sorted_texts(classes_);
        field.class_names = std::move(sorted.texts);
        column.transform = [places = std::move(sorted.places)](std::span<const std::byte> stored,
                                                               std::span<std::byte> out) {
            const auto met = static_cast<std::size_t>(element_at<std::int64_t>(stored, 0));
            std::memcpy(out.data(), &places.at(met), sizeof(std::int64_t));
        };
    }

    // One line for each column, of many the first.
    void say_what_was_done() const {
        constexpr std::size_t most_lines = 20;
        features_.warn_of_lost_digits();
        std::vector<std::string> lines = features_.lines(records_);
        for (std::size_t i = 0; i < learned_.size(); ++i)
            if (missing_[i] > 0)
                lines.push_back(
                    fmt::format("column {}: {} of {} cells have no value; their records are left "
                                "out",
                                printable(table_.columns.name_of(learned_[i])),
                                grouped(missing_[i]),
                                grouped(records_)));
        for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i)
            once(Level::info, "{}", lines[i]);
        if (lines.size() > most_lines)
            once(Level::info, "{} more lines about columns", grouped(lines.size() - most_lines));
        if (rows_ < records_)
            once(Level::info,
                 "'{}': {} of {} records are left out, as --missing drop says",
                 table_.file.path().string(),
                 grouped(records_ - rows_),
                 grouped(records_));
    }

    CsvTable table_;
    const SourceOptions& options_;
    CsvFeatures features_;
    Spool answers_;
    std::vector<std::size_t> learned_;    // columns of targets, or the one of labels
    std::vector<std::uint64_t> missing_;  // cells of these
    std::map<std::string, std::int64_t> classes_;
    std::vector<std::string> row_names_;
    bool labels_are_names_ = false;
    std::uint64_t records_ = 0, rows_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_csv(const fs::path& path,
                                    const CsvOptions& csv,
                                    const SourceOptions& options) {
    return CsvImport(path, csv, options).run();
}

}  // namespace lockstep
