// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "csv_reader.hpp"
#include "field_plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t no_column = SIZE_MAX;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

// The whole of `text` as a finite number, or nothing.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
    text = trimmed(text);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    Number value{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size()) return {};
    if constexpr (std::is_floating_point_v<Number>)
        if (!std::isfinite(value)) return {};
    return value;
}

// The roles of the columns.
struct CsvColumns {
    std::vector<std::string> names;  // empty if there is no header
    std::size_t count = 0, label = no_column, target = no_column, row_name = no_column;
    std::vector<std::size_t> features;
    std::string_view separator;  // the right value for --separator; "" if there are several columns

    std::string name_of(std::size_t column) const {
        return names.empty() ? fmt::format("{}", column + 1)
                             : fmt::format("{} ('{}')", column + 1, names[column]);
    }
};

bool is_header(const std::vector<std::string>& cells, Header header) {
    if (header != Header::guess) return header == Header::yes;
    return std::ranges::none_of(
        cells, [](const std::string& cell) { return number_in<double>(cell).has_value(); });
}

std::size_t find_column(const CsvColumns& columns,
                        const std::string& wanted,
                        const fs::path& path) {
    if (wanted.empty()) return no_column;
    const auto named = std::ranges::find(columns.names, wanted);
    if (named != columns.names.end())
        return static_cast<std::size_t>(named - columns.names.begin());
    const auto number = parse_integer(wanted);
    if (number && *number >= 1 && static_cast<std::uint64_t>(*number) <= columns.count)
        return static_cast<std::size_t>(*number - 1);
    throw Error(
        "E106",
        fmt::format("'{}' has no column '{}'", path.string(), wanted),
        columns.names.empty()
            ? fmt::format("it has {} columns and no header", columns.count)
            : fmt::format("its {} columns are {}",
                          columns.count,
                          fmt::join(std::span(columns.names)
                                        .first(std::min<std::size_t>(columns.names.size(), 20)),
                                    ", ")),
        columns.separator.empty() ? "give a column's name, or its number from 1"
                                  : fmt::format("give --separator {}", columns.separator));
}

// Python's csv writes the records `r` of which `kept` is true, with `cells`, to NAME.csv. Bytes of
// other encodings stay as they are.
std::string rewrite_csv_command(const fs::path& path,
                                char separator,
                                const std::string& cells,
                                const std::string& kept = "") {
    return fmt::format(
        "python3 -c 'import csv,sys; k=dict(newline=\"\",encoding=\"latin1\"); "
        "w=csv.writer(open(\"NAME.csv\",\"w\",**k),delimiter={0}); [w.writerow({1}) for j,r in "
        "enumerate(csv.reader(open(sys.argv[1],**k),delimiter={0})) if r{2}]' {3}",
        separator == '\t' ? std::string("\"\\t\"") : fmt::format("\"{}\"", separator),
        cells,
        kept.empty() ? "" : " and " + kept,
        shell_word(path.string()));
}

constexpr std::array<std::string_view, 8> no_values{
    "", "NA", "N/A", "nan", "NaN", "null", "NULL", "?"};

// Returns true if it is a number with a comma for the point.
bool has_decimal_comma(std::string cell) {
    if (std::ranges::count(cell, ',') != 1) return false;
    std::ranges::replace(cell, ',', '.');
    return number_in<double>(cell).has_value();
}

// The word of --separator for what seems to be between columns; "" if `cells` are several.
std::string_view other_separator(const std::vector<std::string>& cells) {
    if (cells.size() != 1) return "";
    if (cells[0].find(';') != cells[0].npos) return "semicolon";
    if (cells[0].find('\t') != cells[0].npos) return "tab";
    return cells[0].find(',') != cells[0].npos ? "comma" : "";
}

// Turns records into rows of two spools: features, and labels or targets.
class CsvImport {
  public:
    CsvImport(const fs::path& path, const CsvOptions& csv, const SourceOptions& options)
        : csv_(csv),
          options_(options),
          file_(path),
          reader_(file_, csv.separator, csv.encoding),
          features_(options.scratch),
          answers_(options.scratch) {}

    std::unique_ptr<RowSource> run() {
        std::vector<std::string> cells;
        check(reader_.next(cells), [&] { return malformed("it has no records"); });
        settle_columns(cells);
        bool has_record = columns_.names.empty();
        while (has_record || reader_.next(cells)) {
            has_record = false;
            add(cells);
            if (options_.report && rows_ % 4096 == 0)
                options_.report(reader_.bytes_read(), file_.bytes());
        }
        check(rows_ > 0, [&] { return malformed("it has a header and no records"); });
        return source();
    }

  private:
    void settle_columns(const std::vector<std::string>& cells) {
        columns_.count = cells.size();
        columns_.separator = other_separator(cells);
        if (is_header(cells, csv_.header)) {
            columns_.names = cells;
            for (std::string& name : columns_.names) name = trimmed(name);
        }
        columns_.label = find_column(columns_, csv_.label, file_.path());
        columns_.target = find_column(columns_, csv_.target, file_.path());
        columns_.row_name = find_column(columns_, csv_.row_names, file_.path());
        check_names();
        const std::size_t others = has_answer() ? 1 : 0;
        check(columns_.count > others, [&] {
            return malformed_input(file_.path(),
                                   "a CSV file that can be packed",
                                   "its only column is the one to predict",
                                   columns_.separator.empty()
                                       ? "give a file with features, too"
                                       : fmt::format("give --separator {}", columns_.separator));
        });
        expect(csv_.label.empty() || csv_.target.empty(), "one column is predicted");
        if (!csv_.features.empty() && !columns_.names.empty()) return find_features();
        for (std::size_t c = 0; c < columns_.count; ++c)
            if (c != columns_.label && c != columns_.target) columns_.features.push_back(c);
    }

    // In the order of those that are wanted, so that the file's does not matter.
    void find_features() {
        for (const std::string& name : csv_.features) {
            const auto found = std::ranges::find(columns_.names, name);
            check(found != columns_.names.end(), [&] {
                return Error(
                    "E214",
                    fmt::format("'{}' has no column '{}'", file_.path().string(), printable(name)),
                    fmt::format("its columns are {}", fmt::join(columns_.names, ", ")),
                    "add it, or give it that name in the first line of the file");
            });
            columns_.features.push_back(static_cast<std::size_t>(found - columns_.names.begin()));
        }
        std::vector<std::string> others;
        for (std::size_t c = 0; c < columns_.count; ++c)
            if (std::ranges::find(columns_.features, c) == columns_.features.end() &&
                c != columns_.row_name)
                others.push_back(printable(columns_.names[c]));
        if (!others.empty())
            once(Level::info,
                 "'{}': columns that are no features are left out: {}",
                 file_.path().string(),
                 fmt::join(others, ", "));
    }

    // Whoever uses a trained model finds its columns by these.
    void check_names() const {
        std::map<std::string_view, std::size_t> first;
        for (std::size_t c = 0; c < columns_.names.size(); ++c) {
            const auto [met, is_new] = first.emplace(columns_.names[c], c);
            check(is_new, [&] {
                return Error("E214",
                             fmt::format("'{}' has two columns with the same name, '{}': {} and {}",
                                         file_.path().string(),
                                         printable(columns_.names[c]),
                                         met->second + 1,
                                         c + 1),
                             "a trained model finds its columns by their names",
                             "give one of them another name, in the first line of the file");
            });
        }
    }

    // Returns the names of all columns but the target; none if they are too long to be kept.
    std::vector<std::string> feature_names() const {
        std::vector<std::string> names;
        std::size_t bytes = 0;
        if (columns_.names.empty()) return csv_.features;
        for (const std::size_t c : columns_.features) {
            names.push_back(columns_.names[c]);
            bytes += names.back().size();
        }
        if (bytes <= most_column_bytes) return names;
        once(Level::warn,
             "the names of the columns are {} long, more than {}: they are not kept, so that "
             "columns in another order go unnoticed",
             bytes_text(bytes),
             bytes_text(most_column_bytes));
        return {};
    }

    bool predicts_nothing() const {
        return csv_.label.empty() && csv_.target.empty() && csv_.features.empty();
    }
    bool has_answer() const { return columns_.label != no_column || columns_.target != no_column; }

    void add(const std::vector<std::string>& cells) {
        if (cells.size() != columns_.count)
            throw malformed(fmt::format("line {} has {} cells; the first has {}",
                                        grouped(reader_.line()),
                                        cells.size(),
                                        columns_.count));
        for (const std::size_t c : columns_.features) add_number(features_, c, cells[c]);
        if (columns_.target != no_column)
            add_number(answers_, columns_.target, cells[columns_.target]);
        if (columns_.label != no_column) add_label(cells[columns_.label]);
        if (columns_.row_name != no_column) row_names_.push_back(cells[columns_.row_name]);
        ++rows_;
    }

    void add_number(Spool& spool, std::size_t column, const std::string& cell) {
        if (csv_.type == ElementType::f64)
            append(spool, number_or_throw<double>(column, cell));
        else
            append(spool, number_or_throw<float>(column, cell));
    }

    template <class Number>
    Number number_or_throw(std::size_t column, const std::string& cell) const {
        const auto value = number_in<Number>(cell);
        if (!value) throw no_number(column, cell, "a finite number");
        return *value;
    }

    // The first label decides whether they are numbers or names.
    void add_label(const std::string& cell) {
        const auto number = number_in<std::int64_t>(cell);
        if (rows_ == 0) labels_are_names_ = !number;
        if (!labels_are_names_) {
            if (!number)
                throw no_number(columns_.label, cell, "a whole number, as the first label is");
            return append(answers_, *number);
        }
        const std::string name(trimmed(cell));
        if (name.empty()) throw no_number(columns_.label, cell, "a name");
        const auto next = static_cast<std::int64_t>(classes_.size());
        append(answers_, classes_.emplace(name, next).first->second);
        if (std::ssize(classes_) > max_classes)
            throw malformed(fmt::format("column {} has more than {} different names",
                                        columns_.name_of(columns_.label),
                                        grouped(max_classes)));
    }

    template <class Number>
    static void append(Spool& spool, const Number& value) {
        spool.append(std::as_bytes(std::span(&value, 1)));
    }

    std::unique_ptr<RowSource> source() {
        std::vector<Field> fields(1);
        std::vector<Column> columns;
        const std::size_t width = columns_.features.size();
        fields[0].name = "features";
        fields[0].type = csv_.type;
        fields[0].shape = {static_cast<std::int64_t>(width)};
        fields[0].columns = feature_names();
        columns.push_back(column_of(features_, fields[0]));
        if (columns_.target != no_column) {
            fields.push_back({.name = "targets", .type = csv_.type});
            columns.push_back(column_of(answers_, fields[1]));
        }
        if (columns_.label != no_column) {
            fields.push_back({.name = "labels", .type = ElementType::i64});
            columns.push_back(column_of(answers_, fields[1]));
            if (labels_are_names_) number_names(fields[1], columns[1]);
        }
        auto made = std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
        made->name_rows(std::move(row_names_));
        return made;
    }

    Column column_of(Spool& spool, const Field& field) const {
        const std::size_t bytes = field.bytes_per_sample();
        return {{{spool.finish(), 0, rows_, bytes}}, bytes};
    }

    // Names were numbered as they came; classes are numbered as they sort.
    void number_names(Field& field, Column& column) const {
        std::vector<std::int64_t> sorted(classes_.size());
        for (const auto& [name, met] : classes_) {
            sorted[static_cast<std::size_t>(met)] =
                static_cast<std::int64_t>(field.class_names.size());
            field.class_names.push_back(name);
        }
        column.transform = [sorted](std::span<const std::byte> stored, std::span<std::byte> out) {
            std::int64_t met = 0;
            std::memcpy(&met, stored.data(), sizeof met);
            std::memcpy(out.data(), &sorted.at(static_cast<std::size_t>(met)), sizeof met);
        };
    }

    Error malformed(const std::string& why) const {
        return malformed_input(file_.path(), "a CSV file that can be packed", why);
    }
    Error no_number(std::size_t column, const std::string& cell, const char* wanted) const {
        return Error("E239",
                     fmt::format("'{}', line {}, column {}: '{}' is not {}",
                                 file_.path().string(),
                                 grouped(reader_.line()),
                                 columns_.name_of(column),
                                 cell.substr(0, 60),
                                 wanted),
                     predicts_nothing()
                         ? "all columns are features, as neither --label nor --target is given"
                         : "",
                     way_past(column, cell));
    }

    std::string way_past(std::size_t column, const std::string& cell) const {
        const auto rewrite = [&](const std::string& cells, const std::string& kept = "") {
            return rewrite_csv_command(file_.path(), csv_.separator, cells, kept);
        };
        if (!columns_.separator.empty())
            return fmt::format("give --separator {}", columns_.separator);
        if (has_decimal_comma(cell))
            return "write points for decimal commas, into NAME.csv: " +
                   rewrite("[c.replace(\",\",\".\") for c in r]");
        if (std::ranges::find(no_values, trimmed(cell)) != no_values.end())
            return "leave out records without a value there, into NAME.csv: " +
                   rewrite(
                       "r",
                       fmt::format(
                           "r[{}].strip() not in (\"{}\")", column, fmt::join(no_values, "\",\"")));
        const std::string number = std::to_string(column + 1);
        return (predicts_nothing()
                    ? fmt::format("give --label {} if it is to be predicted, or ", number)
                    : "") +
               "leave the column out, into NAME.csv: " +
               rewrite(fmt::format("r[:{}]+r[{}:]", column, column + 1));
    }

    const CsvOptions& csv_;
    const SourceOptions& options_;
    InputFile file_;
    CsvReader reader_;
    CsvColumns columns_;
    Spool features_, answers_;
    std::map<std::string, std::int64_t> classes_;
    std::vector<std::string> row_names_;
    bool labels_are_names_ = false;
    std::uint64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_csv(const std::filesystem::path& path,
                                    const CsvOptions& csv,
                                    const SourceOptions& options) {
    return CsvImport(path, csv, options).run();
}

}  // namespace lockstep
