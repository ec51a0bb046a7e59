// SPDX-License-Identifier: Apache-2.0
#include "row_layout.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/axes.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct LayoutWord {
    RowLayout layout;
    std::string_view word;
    std::size_t dimensions;  ///< of a sample; 0: any
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

Error other_dimensions(const FieldMapping& mapping,
                       const Field& field,
                       const std::filesystem::path& file) {
    return Error("E235",
                 fmt::format("field '{}' is not {}", mapping.name, layout_text(mapping.layout)),
                 fmt::format("samples of '{}' in '{}' are [{}]",
                             mapping.hdf5_path,
                             file.string(),
                             fmt::join(field.shape, ", ")),
                 "CHW and HWC are of three dimensions, HW is of two, onehot of one, value of any");
}

Error open_question(const FieldMapping& mapping,
                    const Field& field,
                    const std::filesystem::path& file) {
    const std::string option = fmt::format("--field {}={}", mapping.name, mapping.hdf5_path);
    return Error(
        "E235",
        fmt::format("'{}' of '{}' are {}, which looks like height x width x channels",
                    mapping.name,
                    file.string(),
                    fmt::join(field.shape, " x ")),
        "training takes the first number for channels unless it is told",
        fmt::format("write {0}:HWC, or {0}:CHW if the first number counts channels", option));
}

}  // namespace

std::string layout_words() {
    std::string text;
    for (const LayoutWord& known : words)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", known.word);
    return text;
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

std::string layout_text(RowLayout layout) {
    return layout == RowLayout::label ? "" : std::string(layout_word(layout));
}

void check_layout(const FieldMapping& mapping,
                  const Field& field,
                  const std::filesystem::path& file) {
    const bool is_image = mapping.name == "images" || field.type == ElementType::u8;
    if (mapping.layout == RowLayout::unstated) {
        const bool is_open =
            is_image && field.shape.size() == 3 && may_have_channels_last(field.shape);
        check(!is_open, [&] { return open_question(mapping, field, file); });
        return;
    }
    const std::size_t wanted =
        std::ranges::find(words, mapping.layout, &LayoutWord::layout)->dimensions;
    check(wanted == 0 || wanted == field.shape.size(),
          [&] { return other_dimensions(mapping, field, file); });
}

}  // namespace lockstep
