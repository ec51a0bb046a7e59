// SPDX-License-Identifier: Apache-2.0
// Which data sets of a file look like a model's input and like what it may learn.
#include "lockstep/data/manifest.hpp"

#include "contents.hpp"
#include "format/labels.hpp"
#include "row_form.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::int64_t most_segments = 1024;      // classes of masks that training tells apart
constexpr std::size_t most_input_dimensions = 4;  // of built-in models, with that of the samples

using Shape = std::span<const std::uint64_t>;

bool is_whole_number(const DatasetFacts& facts) {
    return facts.type ? is_whole(*facts.type) : facts.number && facts.number->is_whole;
}

bool is_number(const DatasetFacts& facts) {
    return facts.type.has_value() || facts.number.has_value();
}

Shape sample_of(const DatasetFacts& facts) {
    return std::span(facts.size).subspan(1);
}

double elements(const DatasetFacts& facts) {
    return std::accumulate(
        facts.size.begin(), facts.size.end(), 1.0, [](double product, std::uint64_t size) {
            return product * static_cast<double>(size);
        });
}

// Returns true if the last part of its path has one of `hints`.
bool is_called(const Candidate& each, std::initializer_list<std::string_view> hints) {
    std::string name = each.name.substr(each.name.rfind('/') + 1);
    std::ranges::transform(
        name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return std::ranges::any_of(hints,
                               [&](std::string_view word) { return name.find(word) != name.npos; });
}

bool is_called_answer(const Candidate& each) {
    const bool is_y = each.name.ends_with("/y") || each.name.ends_with("/Y");
    return is_y ||
           is_called(each,
                     {"label", "target", "mask", "class", "truth", "annot", "segm", "categor"});
}

bool is_called_targets(const Candidate& each) {
    return is_called(each, {"target", "score", "value"});
}

bool is_called_tokens(const Candidate& each) {
    return is_called(each, {"token", "input_id", "text"});
}

// Returns true for lists of bytes, one or a column of one for each sample.
bool has_encoded_images(const DatasetFacts& facts) {
    return facts.has_bytes && !facts.size.empty() && facts.size.size() <= 2;
}

// Height and width of an input as training takes it; nothing where it has none.
Shape sides_of(const Candidate& input) {
    const Shape sample = sample_of(input.facts);
    if (sample.size() == 2) return sample;
    if (sample.size() != 3) return {};
    return input_mapping(input).layout == RowLayout::hwc ? sample.first(2) : sample.subspan(1);
}

bool has_pixels_of(const Candidate& answer, const Candidate& input) {
    const Shape sample = sample_of(answer.facts);
    return sample.size() == 2 && std::ranges::equal(sample, sides_of(input));
}

// Returns true for one number for each sample of `input`, also as MATLAB writes a column: [1, n].
bool has_one_each(const Candidate& answer, const Candidate& input) {
    const auto& size = answer.facts.size;
    const std::uint64_t samples = input.facts.size[0];
    return (answer.facts.has_one_number_a_row() && size[0] == samples) ||
           (samples > 1 && size.size() == 2 && size[0] == 1 && size[1] == samples);
}

// Returns how well `answer` suits `input`; 0: it does not. Most files have one class number per
// sample.
int rank_of_answer(const Candidate& answer, const Candidate& input) {
    const DatasetFacts& facts = answer.facts;
    const bool is_column = !facts.size.empty() && has_one_each(answer, input);
    const bool is_other = &answer != &input && answer.obstacle.empty() && !facts.size.empty() &&
                          (is_column || facts.size[0] == input.facts.size[0]);
    if (!is_other) return 0;
    const int named = is_called_answer(answer) ? 4 : 0;
    if (is_column) {
        if (is_whole_number(facts) || facts.is_column_of_texts()) return named + 3;
        return named > 0 && is_number(facts) ? named + 1 : 0;
    }
    if (!is_number(facts)) return 0;
    // Masks are no input from which images are learned.
    if (has_pixels_of(answer, input))
        return named > 0 || (is_whole_number(facts) && !is_called_answer(input)) ? named + 2 : 0;
    return named > 0 && facts.size.size() == 2 ? named : 0;
}

const Candidate* answer_to(const Candidate& input, const std::vector<Candidate>& all) {
    const Candidate* best = nullptr;
    int best_rank = 0;
    for (const Candidate& each : all)
        if (const int rank = rank_of_answer(each, input); rank > best_rank) {
            best = &each;
            best_rank = rank;
        }
    return best;
}

bool is_within(const std::optional<KnownValues>& values, double most) {
    return !values || (values->least >= 0 && values->most <= most);
}

// Returns true for stored numbers that stand for others, so that they number no classes.
bool is_scaled(const DatasetFacts& facts) {
    return facts.cf &&
           (facts.cf->packing.scale.value_or(1) != 1 || facts.cf->packing.offset.value_or(0) != 0);
}

// Returns the way in which its numbers can be a target; nothing if they cannot.
std::optional<FieldMapping> answer_mapping(const Candidate& answer,
                                           const Candidate& input,
                                           const std::optional<KnownValues>& values) {
    const bool is_class = is_whole_number(answer.facts) && !is_scaled(answer.facts);
    const bool are_whole = values && values->are_whole && !is_scaled(answer.facts);
    const auto as = [&](const char* name, RowLayout layout = RowLayout::unstated) {
        return FieldMapping{name, answer.name, layout};
    };
    const bool is_real_class = !is_class && are_whole && !is_called_targets(answer);
    const RowLayout layout = is_class ? RowLayout::unstated : RowLayout::label;
    if (answer.facts.is_column_of_texts()) return as("labels");
    if (has_one_each(answer, input)) {
        const bool is_label = (is_class || is_real_class) && !is_called_targets(answer) &&
                              is_within(values, static_cast<double>(max_classes - 1));
        return is_label ? as("labels", layout) : as("targets");
    }
    if (has_pixels_of(answer, input)) {
        const bool is_mask = (is_class || are_whole) && is_within(values, most_segments - 1);
        return is_mask ? std::optional(as("masks", layout)) : std::nullopt;
    }
    if (values && values->is_one_hot) return as("labels", RowLayout::one_hot);
    const bool are_flags = are_whole && is_within(values, 1) && !is_called_targets(answer);
    return are_flags ? as("labels") : as("targets");
}

// Behind such a path a layout must be stated: its last part would be taken for one.
bool ends_like_layout(const std::string& path) {
    const std::size_t colon = path.rfind(':');
    return colon != path.npos &&
           std::ranges::all_of(std::string_view(path).substr(colon + 1),
                               [](unsigned char letter) { return std::isalpha(letter) != 0; });
}

}  // namespace

bool may_be_input(const Candidate& each) {
    return each.obstacle.empty() && (has_encoded_images(each.facts) ||
                                     (each.facts.size.size() >= 2 &&
                                      !each.facts.has_one_number_a_row() && !each.facts.is_text));
}

FieldMapping input_mapping(const Candidate& input) {
    if (has_encoded_images(input.facts)) return {"images", input.name};
    const std::vector<std::int64_t> shape(input.facts.size.begin() + 1, input.facts.size.end());
    if (shape.size() == 3)
        return {
            "images", input.name, may_have_channels_last(shape) ? RowLayout::hwc : RowLayout::chw};
    if (shape.size() == 1 && is_called_tokens(input) && is_whole_number(input.facts))
        return {"tokens", input.name};
    return {shape.size() == 2 ? "images" : "features", input.name};
}

std::vector<FieldMapping> suggested_mappings(
    const std::vector<Candidate>& all, const std::vector<std::optional<KnownValues>>& values) {
    const Candidate *input = nullptr, *answer = nullptr;
    const auto standing = [&](const Candidate& each, const Candidate* with) {
        return std::tuple(each.facts.size.size() <= most_input_dimensions,
                          with != nullptr || is_called_tokens(each),
                          !is_called_answer(each),
                          elements(each.facts));
    };
    for (const Candidate& each : all) {
        if (!may_be_input(each)) continue;
        const Candidate* learned = answer_to(each, all);
        if (!input || standing(each, learned) > standing(*input, answer))
            std::tie(input, answer) = std::tuple(&each, learned);
    }
    if (!input) return {};
    std::vector<FieldMapping> mappings{input_mapping(*input)};
    if (answer && mappings[0].name != "tokens") {
        const auto place = static_cast<std::size_t>(answer - all.data());
        const auto known = place < values.size() ? values[place] : std::nullopt;
        if (auto mapping = answer_mapping(*answer, *input, known))
            mappings.push_back(std::move(*mapping));
    }
    for (FieldMapping& mapping : mappings) {
        if (mapping.layout == RowLayout::unstated && ends_like_layout(mapping.hdf5_path))
            mapping.layout = may_be_label(mapping) ? RowLayout::label : RowLayout::value;
        const auto& facts = std::ranges::find(all, mapping.hdf5_path, &Candidate::name)->facts;
        if (needs_unpacking(facts, mapping)) mapping.cf.emplace();
    }
    return mappings;
}

}  // namespace lockstep
