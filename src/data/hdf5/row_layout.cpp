// SPDX-License-Identifier: Apache-2.0
#include "row_layout.hpp"

#include "lockstep/core/log.hpp"

#include "format/labels.hpp"

#include <algorithm>
#include <array>
#include <cctype>

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

void suggest_one_hot(const FieldMapping& mapping, const Field& field) {
    const bool is_named = mapping.name == "labels" && mapping.layout == RowLayout::unstated;
    if (is_named && field.shape.size() == 1)
        once(Level::info,
             "labels are [n, {0}], taken for {0} labels a sample; if each row has one 1 and else "
             "0, write --field {1}={2}:onehot",
             field.shape[0],
             mapping.name,
             mapping.hdf5_path);
}

}  // namespace lockstep
