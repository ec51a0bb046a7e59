// SPDX-License-Identifier: Apache-2.0

#include "row_layout.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "format/labels.hpp"
#include "stored_blocks.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct LayoutWord {
    RowLayout layout;
    std::string_view word;
    std::size_t dimensions;  ///< dimensions of a sample; 0: any
};
constexpr auto words = std::to_array<LayoutWord>({{RowLayout::chw, "CHW", 3},
                                                  {RowLayout::hwc, "HWC", 3},
                                                  {RowLayout::hw, "HW", 2},
                                                  {RowLayout::label, "label", 0},
                                                  {RowLayout::one_hot, "onehot", 1},
                                                  {RowLayout::value, "value", 0}});

bool is_same_word(std::string_view a, std::string_view b) {
    return std::ranges::equal(
        a,
        b,
        {},
        [](unsigned char c) { return std::tolower(c); },
        [](unsigned char c) { return std::tolower(c); });
}

// The first dimension is the sample's wherever it is: who says so says nothing new.
bool is_word(std::string_view word, const LayoutWord& known) {
    if (is_same_word(word, known.word)) return true;
    return known.dimensions > 1 && is_same_word(word.substr(0, 1), "N") &&
           is_same_word(word.substr(1), known.word);
}

std::size_t dimensions_of(RowLayout layout) {
    const auto found = std::ranges::find(words, layout, &LayoutWord::layout);
    return found == words.end() ? 0 : found->dimensions;
}

// Returns true if all data looks like one sample of the layout, and not like several of another.
bool is_one_sample(RowLayout layout, const std::vector<std::int64_t>& whole) {
    constexpr std::int64_t most_channels = 4;
    if (layout == RowLayout::hwc) return may_have_channels_last(whole);
    return layout == RowLayout::hw || whole[0] <= most_channels;
}

Error open_question(const FieldMapping& mapping, const Field& field, const fs::path& file) {
    const std::string option = fmt::format("--field {}={}", mapping.name, mapping.hdf5_path);
    return Error(
        "E235",
        fmt::format("'{}' of '{}' are {}, which looks like height x width x channels",
                    mapping.name,
                    file.string(),
                    fmt::join(field.shape, " x ")),
        "without a layout, training takes the first number for channels",
        fmt::format("write {0}:HWC, or {0}:CHW if the first number counts channels", option));
}

bool is_target(const FieldMapping& field) {
    return field.name == "targets" &&
           (field.layout == RowLayout::unstated || field.layout == RowLayout::value);
}

// [1, N] of one row of chunks that a stream reads.
bool is_one_row(const DatasetFacts& facts, const FieldMapping& field) {
    const bool is_stored =
        facts.layout == StorageLayout::contiguous ||
        (facts.layout == StorageLayout::chunked && facts.chunk.size() == 2 && facts.chunk[0] == 1);
    const bool is_read = std::ranges::all_of(
        facts.filters, [](const FilterFacts& filter) { return is_known_filter(filter.kind); });
    return (is_target(field) || is_one_label(field)) && facts.number && is_stored && is_read &&
           facts.size.size() == 2 && facts.size[0] == 1 && facts.size[1] > 1;
}

void drop_last_ones(DatasetFacts& facts) {
    const bool is_chunked = facts.layout == StorageLayout::chunked;
    while (facts.size.size() > 2 && facts.size.back() == 1 &&
           (!is_chunked || (facts.chunk.size() == facts.size.size() && facts.chunk.back() == 1))) {
        facts.size.pop_back();
        if (is_chunked) facts.chunk.pop_back();
    }
}

constexpr std::uint64_t texts_at_once = 16384;
constexpr std::uint64_t most_name_bytes = std::uint64_t{64} << 20;

Error bad_row(const RowsRequest& from,
              std::uint64_t row,
              const std::string& what,
              const std::string& why,
              const std::string& fix) {
    return Error(
        "E210",
        fmt::format(
            "row {} of '{}' in '{}' {}", grouped(row), from.dataset, from.path.string(), what),
        why,
        fix);
}

template <class Value>
std::string difference_from_hot(const std::vector<Value>& values) {
    const auto other = std::ranges::find_if(
        values, [](Value value) { return value != Value{1} && value != Value{0}; });
    if (other != values.end())
        return fmt::format("has {} at place {}", *other, other - values.begin());
    const auto ones = std::ranges::count(values, Value{1});
    return ones == 0 ? fmt::format("has {} zeros and no one", values.size())
                     : fmt::format("has {} ones", ones);
}

template <class Value>
void add_hot(std::span<const std::byte> rows,
             const RowsRequest& from,
             std::uint64_t first,
             LabelColumn& column) {
    std::vector<Value> values(column.counts.size());
    const std::size_t row_bytes = values.size() * sizeof(Value);
    for (std::size_t row = 0; row < rows.size() / row_bytes; ++row) {
        std::memcpy(values.data(), rows.data() + row * row_bytes, row_bytes);
        const auto one = std::ranges::find(values, Value{1});
        const auto zeros = std::ranges::count(values, Value{0});
        check(one != values.end() && zeros + 1 == std::ssize(values), [&] {
            return bad_row(from,
                           first + row,
                           "is not one-hot: it " + difference_from_hot(values),
                           "a label that is one-hot has one 1, and 0 elsewhere",
                           fmt::format("give --field labels={0} if several labels may be 1, or "
                                       "--field targets={0} to predict these numbers",
                                       from.dataset));
        });
        column.numbers.push_back(static_cast<std::uint32_t>(one - values.begin()));
        ++column.counts[column.numbers.back()];
    }
}

}  // namespace

std::string layout_words() {
    std::string text;
    for (const LayoutWord& known : words)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", known.word);
    return text;
}

RowLayout row_layout(ImageLayout layout) {
    if (layout == ImageLayout::chw) return RowLayout::chw;
    return layout == ImageLayout::hwc ? RowLayout::hwc : RowLayout::unstated;
}

std::optional<RowLayout> parse_layout(std::string_view word) {
    const auto found =
        std::ranges::find_if(words, [&](const LayoutWord& known) { return is_word(word, known); });
    if (found == words.end()) return {};
    return found->layout;
}

std::string_view layout_word(RowLayout layout) {
    const auto found = std::ranges::find(words, layout, &LayoutWord::layout);
    return found == words.end() ? "" : found->word;
}

bool may_be_label(const FieldMapping& mapping) {
    const bool is_usual =
        mapping.name == "labels" || mapping.name == "masks" || mapping.name == "tokens";
    return mapping.layout == RowLayout::label || mapping.layout == RowLayout::one_hot ||
           (mapping.layout == RowLayout::unstated && is_usual);
}

bool is_one_label(const FieldMapping& mapping) {
    return mapping.layout == RowLayout::label ||
           (mapping.layout == RowLayout::unstated && is_label_name(mapping.name));
}

std::string layout_text(RowLayout layout) {
    return layout == RowLayout::label ? "" : std::string(layout_word(layout));
}

bool fits(RowLayout layout, std::size_t dimensions) {
    const std::size_t wanted = dimensions_of(layout);
    return wanted == 0 || wanted == dimensions;
}

Error misfit(RowLayout layout, const LaidOutRows& rows) {
    const std::string what = fmt::format("field '{}' is not {}", rows.field, layout_word(layout));
    std::vector<std::int64_t> whole{static_cast<std::int64_t>(rows.count)};
    whole.insert(whole.end(), rows.shape.begin(), rows.shape.end());
    const std::string why =
        fmt::format("samples of {} are [{}]", rows.place, fmt::join(rows.shape, ", "));
    const bool may_be_one = dimensions_of(layout) > 1 && whole.size() == dimensions_of(layout);
    if (rows.one_each.empty() || !may_be_one) return {"E235", what, why, rows.otherwise};
    const bool is_one = is_one_sample(layout, whole);
    return {"E235",
            what,
            fmt::format("{}; all of it is [{}]{}",
                        why,
                        fmt::join(whole, ", "),
                        is_one ? ": a file holds one sample" : ""),
            fmt::format("{}{}{}",
                        is_one ? "" : "if a file holds one sample, ",
                        rows.one_each,
                        is_one ? "" : "; else " + rows.otherwise)};
}

void settle_columns(std::vector<DatasetFacts>& datasets,
                    const std::vector<FieldMapping>& fields,
                    bool are_alone) {
    std::uint64_t samples = 0;
    for (std::size_t f = 0; f < fields.size(); ++f) {
        if (is_target(fields[f]) && datasets[f].parts.empty()) drop_last_ones(datasets[f]);
        if (samples == 0 && !is_one_row(datasets[f], fields[f]) && !datasets[f].size.empty())
            samples = datasets[f].size[0];
    }
    for (std::size_t f = 0; f < fields.size(); ++f) {
        DatasetFacts& facts = datasets[f];
        if (!is_one_row(facts, fields[f])) continue;
        if (facts.size[1] != samples && !(samples == 0 && are_alone)) continue;
        facts.size.erase(facts.size.begin());
        if (!facts.chunk.empty()) facts.chunk.erase(facts.chunk.begin());
    }
}

void check_is_settled(const FieldMapping& mapping, const Field& field, const fs::path& file) {
    const bool is_image = mapping.name == "images" || field.type == ElementType::u8;
    const bool is_open = mapping.layout == RowLayout::unstated && is_image &&
                         field.shape.size() == 3 && may_have_channels_last(field.shape);
    check(!is_open, [&] { return open_question(mapping, field, file); });
}

std::vector<std::byte> LabelColumn::bytes() const {
    std::vector<std::byte> bytes(numbers.size() * element_bytes(type()));
    if (type() == ElementType::u8)
        std::ranges::transform(numbers, bytes.begin(), [](std::uint32_t number) {
            return static_cast<std::byte>(number);
        });
    else if (!numbers.empty())
        std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
}

void TextLabels::add(Sandbox& sandbox, const RowsRequest& from) {
    for (std::uint64_t first = 0; first < from.rows; first += texts_at_once) {
        RowsRequest some = from;
        some.first = first;
        some.rows = std::min(texts_at_once, from.rows - first);
        std::uint64_t row = first;
        for (std::string& text : sandbox.read_lists(some))
            numbers_.push_back(number_of(std::move(text), from, row++));
    }
}

std::uint32_t TextLabels::number_of(std::string text, const RowsRequest& from, std::uint64_t row) {
    const char* const named = "a label that is a text is the name of a class";
    if (text.empty())
        throw bad_row(
            from,
            row,
            "is empty",
            named,
            fmt::format("to call such rows '?', which changes the file: python3 -c 'import "
                        "sys,h5py; f=h5py.File(sys.argv[1],\"r+\"); d=f[sys.argv[2]]; x=d[()]; "
                        "x[x==b\"\"]=b\"?\"; d[...]=x' {} {}",
                        shell_word(from.path.string()),
                        shell_word(from.dataset)));
    if (text.size() > most_text_bytes)
        throw bad_row(from,
                      row,
                      fmt::format("has more than {} bytes", grouped(most_text_bytes)),
                      named,
                      "give a data set of shorter names");
    const auto [at, is_new] =
        met_.try_emplace(std::move(text), static_cast<std::uint32_t>(met_.size()));
    name_bytes_ += is_new ? at->first.size() : 0;
    if (std::ssize(met_) > max_classes || name_bytes_ > most_name_bytes)
        throw bad_row(
            from,
            row,
            fmt::format("is one of more than {} different texts", grouped(met_.size() - 1)),
            named,
            "give a data set of fewer classes");
    return at->second;
}

LabelColumn TextLabels::finish() {
    LabelColumn column;
    std::vector<std::uint32_t> sorted(met_.size());
    for (const auto& [name, met] : met_) {
        sorted[met] = static_cast<std::uint32_t>(column.names.size());
        column.names.push_back(name);
    }
    column.counts.resize(column.names.size());
    column.numbers = std::move(numbers_);
    for (std::uint32_t& number : column.numbers) {
        number = sorted[number];
        ++column.counts[number];
    }
    return column;
}

void add_hot_rows(LabelColumn& column,
                  ElementType type,
                  std::span<const std::byte> rows,
                  const RowsRequest& from,
                  std::uint64_t first) {
    with_type(type, [&]<class Value>(Value) { add_hot<Value>(rows, from, first, column); });
}

}  // namespace lockstep
