// SPDX-License-Identifier: Apache-2.0
// Reads the records of a CSV file, and turns them into rows. Tested: data/pack/csv_source_test.cpp.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "csv_table.hpp"
#include "format/labels.hpp"
#include "hdf5/shard_probe.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t csv_buffer_bytes = std::size_t{1} << 20,
                      longest_record = std::size_t{16} << 20;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Turns records into rows of two spools: features, and labels or targets.
class CsvImport {
  public:
    CsvImport(const fs::path& path, const CsvOptions& csv, const SourceOptions& options)
        : table_(path, csv), options_(options), features_(table_) {}

    std::unique_ptr<RowSource> run() {
        std::vector<std::string> cells;
        check(table_.reader.next(cells), [&] { return table_.unusable("it has no records"); });
        table_.columns = columns_of(cells, table_.csv, table_.file.path());
        table_.missing.resize(cells.size());
        features_.begin();
        learned_ = table_.columns.targets;
        if (table_.columns.label != no_column) learned_.push_back(table_.columns.label);
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
            const std::string_view separator = other_separator(cells);
            const std::string own =
                separator.empty() ? "" : fmt::format("give --separator {}", separator);
            throw table_.unusable(fmt::format("line {} has {} cells; the first has {}",
                                              grouped(table_.reader.line()),
                                              cells.size(),
                                              table_.columns.count),
                                  table_.columns.fix.empty() ? own : table_.columns.fix);
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
        bool lacks = false;
        for (const auto* columns : {&table_.columns.features, &learned_})
            for (const std::size_t column : *columns)
                if (has_no_value(cells[column])) {
                    ++table_.missing[column];
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
        for (const std::size_t column : learned_)
            if (table_.missing[column] > 0)
                lines.push_back(
                    table_.missing_text(column, records_, "their records are left out"));
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
    std::vector<std::size_t> learned_;  // columns of targets, or the one of labels
    std::map<std::string, std::int64_t> classes_;
    std::vector<std::string> row_names_;
    bool labels_are_names_ = false;
    std::uint64_t records_ = 0, rows_ = 0;
};

}  // namespace

CsvReader::CsvReader(const InputFile& file, char separator, const std::string& encoding)
    : file_(file), separator_(static_cast<unsigned char>(separator)), encoding_(encoding) {
    if (const FileGuess kind = guess_of_file(file.path()); kind.is_known)
        throw malformed_input(file.path(), "a CSV file", kind.meaning, kind.way);
    if (!encoding.empty()) {
        const iconv_t made = ::iconv_open("UTF-8", encoding.c_str());
        check(made != reinterpret_cast<iconv_t>(-1),
              "E103",
              fmt::format("--encoding is '{}'", printable(encoding)),
              "the system's iconv knows no encoding of that name",
              "'iconv -l' lists them: latin1, cp1252, utf-16, shift_jis, ...");
        converter_.reset(made);
    }
    peek();
    if (buffer_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
}

Error CsvReader::malformed(std::uint64_t line, const std::string& why) const {
    return malformed_input(
        file_.path(), "a CSV file", fmt::format("line {}: {}", grouped(line), why));
}

// Empty at the end of the file.
void CsvReader::fill() {
    buffer_.clear();
    at_ = 0;
    while (buffer_.empty() && offset_ < file_.bytes()) {
        buffer_.resize(std::min<std::uint64_t>(csv_buffer_bytes, file_.bytes() - offset_));
        file_.read(offset_, std::as_writable_bytes(std::span(buffer_)));
        offset_ += buffer_.size();
        if (converter_) recode();
    }
}

// As far as the buffer, and what was left before it, are whole characters.
void CsvReader::recode() {
    const auto refuse = [&](const char* how) {
        return malformed(
            line_,
            fmt::format("from here on there are bytes that {} {}", how, printable(encoding_)));
    };
    left_ += std::exchange(buffer_, {});
    char* from = left_.data();
    std::size_t bytes = left_.size();
    while (bytes > 0) {
        std::array<char, 4096> text;
        char* to = text.data();
        std::size_t room = text.size();
        const std::size_t done = ::iconv(converter_.get(), &from, &bytes, &to, &room);
        const int problem = done == static_cast<std::size_t>(-1) ? errno : 0;
        buffer_.append(text.data(), to);
        if (problem == EINVAL) break;  // the rest of a character is yet to come
        if (problem != 0 && problem != E2BIG) throw refuse("are no");
    }
    left_.erase(0, left_.size() - bytes);
    if (offset_ == file_.bytes() && !left_.empty()) throw refuse("end within a character of");
}

int CsvReader::peek() {
    if (at_ == buffer_.size()) fill();
    if (buffer_.empty()) return end_of_file;
    return static_cast<unsigned char>(buffer_[at_]);
}

int CsvReader::take() {
    const int sign = peek();
    if (sign != end_of_file) ++at_;
    if (sign == '\n') ++line_;
    return sign;
}

void CsvReader::grow(std::string& cell, int sign) {
    if (sign == 0)
        throw malformed(line_, "a zero byte: this is no text, or UTF-16 (--encoding utf-16)");
    if (++record_bytes_ > longest_record)
        throw malformed(record_line_, "the record that begins here has more than 16 MiB");
    cell += static_cast<char>(sign);
}

void CsvReader::read_quoted(std::string& cell) {
    const std::uint64_t opened = line_;
    for (take();;) {
        const int sign = take();
        if (sign == end_of_file) throw malformed(opened, "a quote opens and never closes");
        if (sign != '"') {
            grow(cell, sign);
        } else if (peek() == '"') {
            grow(cell, take());
        } else {
            break;
        }
    }
    const int after = peek();
    if (after != separator_ && after != '\n' && after != '\r' && after != end_of_file)
        throw malformed(line_, "text follows a closing quote");
}

void CsvReader::read_plain(std::string& cell) {
    for (int sign = peek(); sign != separator_ && sign != '\n' && sign != end_of_file;
         sign = peek())
        grow(cell, take());
    if (cell.ends_with('\r') && peek() != separator_) cell.pop_back();
}

bool CsvReader::ends_line() {
    if (peek() == '\r') take();
    if (peek() == end_of_file) return true;
    if (peek() != '\n') return false;
    take();
    return true;
}

void CsvReader::read_record(std::vector<std::string>& cells) {
    std::size_t count = 0;
    record_bytes_ = 0;
    record_line_ = line_;
    do {
        if (count == cells.size()) cells.emplace_back();
        std::string& cell = cells[count++];
        cell.clear();
        if (peek() == '"')
            read_quoted(cell);
        else
            read_plain(cell);
        record_bytes_ += sizeof(std::string);
    } while (peek() == separator_ && take() != end_of_file);
    if (!ends_line()) throw malformed(line_, "a carriage return ends no line");
    cells.resize(count);
}

bool CsvReader::next(std::vector<std::string>& cells) {
    while (peek() != end_of_file) {
        read_record(cells);
        if (cells.size() > 1 || !cells[0].empty()) return true;
    }
    return false;
}

std::unique_ptr<RowSource> open_csv(const fs::path& path,
                                    const CsvOptions& csv,
                                    const SourceOptions& options) {
    return CsvImport(path, csv, options).run();
}

}  // namespace lockstep
