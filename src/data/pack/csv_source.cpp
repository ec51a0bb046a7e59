// SPDX-License-Identifier: Apache-2.0
// Tested: data/pack/csv_source_test.cpp.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "csv_cell.hpp"
#include "csv_features.hpp"
#include "csv_reader.hpp"
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
        : csv_(csv),
          options_(options),
          file_(path),
          reader_(file_, csv.separator, csv.encoding),
          errors_(file_, reader_, csv_, columns_),
          features_(csv_, columns_, errors_, options.scratch),
          answers_(options.scratch) {}

    std::unique_ptr<RowSource> run() {
        std::vector<std::string> cells;
        check(reader_.next(cells), [&] { return errors_.unusable("it has no records"); });
        columns_ = columns_of(cells, csv_, file_.path());
        features_.begin();
        missing_targets_.resize(columns_.targets.size());
        bool has_record = !columns_.is_header();
        while (has_record || reader_.next(cells)) {
            has_record = false;
            add(cells);
            if (options_.report && records_ % 4096 == 0)
                options_.report(reader_.bytes_read(), file_.bytes());
        }
        check(records_ > 0, [&] { return errors_.unusable("it has a header and no records"); });
        if (rows_ == 0) throw features_.nothing_left(records_);
        auto made = source();
        say_what_was_done();
        return made;
    }

  private:
    void add(const std::vector<std::string>& cells) {
        if (cells.size() != columns_.count) {
            const std::string_view separator =
                columns_.separator.empty() ? other_separator(cells) : columns_.separator;
            throw errors_.unusable(
                fmt::format("line {} has {} cells; the first has {}",
                            grouped(reader_.line()),
                            cells.size(),
                            columns_.count),
                separator.empty() ? "" : fmt::format("give --separator {}", separator));
        }
        ++records_;
        if (csv_.missing == Missing::drop && lacks_value(cells)) return;
        features_.add(cells);
        for (const std::size_t target : columns_.targets)
            if (csv_.type == ElementType::f64)
                add_target<double>(target, cells[target]);
            else
                add_target<float>(target, cells[target]);
        if (columns_.label != no_column) add_label(cells[columns_.label]);
        if (columns_.row_name != no_column) row_names_.push_back(cells[columns_.row_name]);
        ++rows_;
    }

    // All such cells of a record count.
    bool lacks_value(const std::vector<std::string>& cells) {
        bool lacks = features_.lack_value(cells);
        const auto look = [&](std::size_t column, std::uint64_t& count) {
            if (column == no_column || !has_no_value(cells[column])) return;
            ++count;
            lacks = true;
        };
        for (std::size_t t = 0; t < columns_.targets.size(); ++t)
            look(columns_.targets[t], missing_targets_[t]);
        look(columns_.label, missing_labels_);
        return lacks;
    }

    template <class Number>
    void add_target(std::size_t column, const std::string& cell) {
        const auto value = number_in<Number>(cell, csv_.decimal);
        if (!value) throw errors_.bad_cell(column, cell, "a finite number");
        append(*value);
    }

    // The first label decides whether they are numbers or names.
    void add_label(const std::string& cell) {
        const auto number = number_in<std::int64_t>(cell);
        if (rows_ == 0) labels_are_names_ = !number;
        if (!labels_are_names_) {
            if (!number)
                throw errors_.bad_cell(
                    columns_.label, cell, "a whole number, as the first label is");
            return append(*number);
        }
        const std::string name(trimmed(cell));
        if (name.empty()) throw errors_.bad_cell(columns_.label, cell, "a name");
        const auto next = static_cast<std::int64_t>(classes_.size());
        append(classes_.emplace(name, next).first->second);
        if (std::ssize(classes_) > max_classes)
            throw errors_.unusable(fmt::format("column {} has more than {} different names",
                                               columns_.name_of(columns_.label),
                                               grouped(max_classes)));
    }

    template <class Number>
    void append(const Number& value) {
        answers_.append(std::as_bytes(std::span(&value, 1)));
    }

    std::unique_ptr<RowSource> source() {
        std::vector<Field> fields{features_.field()};
        std::vector<Column> columns{features_.finish(fields[0], rows_)};
        if (!columns_.targets.empty()) {
            fields.push_back({.name = "targets", .type = csv_.type});
            if (columns_.targets.size() > 1) fields[1].shape = {std::ssize(columns_.targets)};
            name_columns(fields[1], columns_.targets);
            columns.push_back(column_of(answers_, fields[1]));
        }
        if (columns_.label != no_column) {
            fields.push_back({.name = "labels", .type = ElementType::i64});
            name_columns(fields[1], std::span(&columns_.label, 1));
            columns.push_back(column_of(answers_, fields[1]));
            if (labels_are_names_) number_names_of_classes(fields[1], columns[1]);
        }
        auto made = std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
        made->name_rows(std::move(row_names_));
        return made;
    }

    void name_columns(Field& field, std::span<const std::size_t> columns) const {
        if (columns_.is_header())
            for (const std::size_t column : columns)
                field.columns.push_back(columns_.names[column]);
    }

    Column column_of(Spool& spool, const Field& field) const {
        const std::size_t bytes = field.bytes_per_sample();
        return {{{spool.finish(), 0, rows_, bytes}}, bytes};
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
        const auto add = [&](std::size_t column, std::uint64_t missing) {
            if (missing > 0)
                lines.push_back(
                    fmt::format("column {}: {} of {} cells have no value; their records are left "
                                "out",
                                printable(columns_.name_of(column)),
                                grouped(missing),
                                grouped(records_)));
        };
        for (std::size_t t = 0; t < columns_.targets.size(); ++t)
            add(columns_.targets[t], missing_targets_[t]);
        add(columns_.label, missing_labels_);
        for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i)
            once(Level::info, "{}", lines[i]);
        if (lines.size() > most_lines)
            once(Level::info, "{} more lines about columns", grouped(lines.size() - most_lines));
        if (rows_ < records_)
            once(Level::info,
                 "'{}': {} of {} records are left out, as --missing drop says",
                 file_.path().string(),
                 grouped(records_ - rows_),
                 grouped(records_));
    }

    const CsvOptions& csv_;
    const SourceOptions& options_;
    InputFile file_;
    CsvReader reader_;
    CsvColumns columns_;
    CsvErrors errors_;
    CsvFeatures features_;
    Spool answers_;
    std::vector<std::uint64_t> missing_targets_;
    std::uint64_t missing_labels_ = 0;
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
