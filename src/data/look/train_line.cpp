// SPDX-License-Identifier: Apache-2.0
// Which command trains on what was seen: its fields, and the model and the batch that suit them.
// Tested: data/look/first_look_test.cpp, e2e/data_advice_test.cpp (which runs the commands)
#include "lockstep/core/shell_word.hpp"

#include "format/labels.hpp"
#include "opening/contents.hpp"
#include "seen.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_batch = 128;
constexpr double most_segments = 1024;  // classes of masks that training tells apart

// A field that training would have, and the values of it that were seen.
struct TrainField {
    std::string name;
    std::vector<std::uint64_t> shape;  ///< of a sample; images as [C, H, W] or [H, W]
    std::uint64_t samples = 0;
    const SeenValues* values = nullptr;

    std::uint64_t elements() const {
        return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
    }
    std::uint64_t side(std::size_t from_end) const {
        return shape.size() < from_end ? 1 : shape[shape.size() - from_end];
    }
    std::uint64_t pixels() const { return side(1) * side(2); }
    bool is_sound() const {
        return !values || (!values->is_damaged && values->summary.not_finite == 0);
    }
    bool has_classes(double most) const {
        return is_within(most) && (!values || values->summary.most >= 1);
    }
    bool is_within(double most) const {
        return !values || (values->summary.least >= 0 && values->summary.most <= most);
    }
};

// What is learned, and what --task calls it.
struct Learned {
    const TrainField* field = nullptr;
    std::string_view task;
};

TrainField packed_field(const LookedAt& data) {
    TrainField field{.name = data.name, .samples = data.size.at(0)};
    field.shape.assign(data.size.begin() + 1, data.size.end());
    return field;
}

TrainField mapped_field(const LookedAt& data, const FieldMapping& mapping) {
    TrainField field = packed_field(data);
    field.name = mapping.name;
    if (mapping.layout == RowLayout::hwc)
        std::rotate(field.shape.begin(), field.shape.end() - 1, field.shape.end());
    if (field.elements() == 1 || mapping.layout == RowLayout::one_hot) field.shape.clear();
    return field;
}

// Of packed data all fields, of others' files those that are suggested.
std::vector<TrainField> fields_of(const Seen& seen) {
    std::vector<TrainField> fields;
    const std::vector<FieldMapping>& mappings = seen.place.fields;
    for (std::size_t i = 0; i < seen.place.all.size(); ++i) {
        const LookedAt& data = seen.place.all[i];
        const auto mapping = std::ranges::find(mappings, data.name, &FieldMapping::hdf5_path);
        if (!seen.place.is_packed && mapping == mappings.end()) continue;
        fields.push_back(seen.place.is_packed ? packed_field(data) : mapped_field(data, *mapping));
        if (seen.values[i]) fields.back().values = &*seen.values[i];
    }
    return fields;
}

const TrainField* find(const std::vector<TrainField>& fields, std::string_view name) {
    const auto found = std::ranges::find(fields, name, &TrainField::name);
    return found == fields.end() ? nullptr : &*found;
}

// The one that training takes by itself, or the largest other that it can be given.
const TrainField* input_of(const std::vector<TrainField>& fields) {
    const auto may_be_given = [](const TrainField& field) {
        const bool is_learned =
            is_label_name(field.name) || field.name == "masks" || field.name == "targets";
        return !is_learned && field.shape.size() <= 3;
    };
    for (const char* name : {"images", "features", "tokens"})
        if (const TrainField* field = find(fields, name); field && may_be_given(*field))
            return field;
    const TrainField* largest = nullptr;
    for (const TrainField& field : fields)
        if (may_be_given(field) && (!largest || field.elements() > largest->elements()))
            largest = &field;
    return largest;
}

Learned learned_of(const std::vector<TrainField>& fields, const TrainField& input) {
    if (input.name == "tokens") {
        const bool has_classes = input.shape.size() == 1 && input.shape[0] > 1 &&
                                 input.has_classes(static_cast<double>(max_classes - 1));
        return {has_classes ? &input : nullptr, "next-token"};
    }
    if (const TrainField* labels = find(fields, "labels"); labels && labels->shape.size() <= 1) {
        const bool is_one = labels->shape.empty();
        const bool fits = is_one ? labels->has_classes(static_cast<double>(max_classes - 1))
                                 : labels->is_within(1);
        if (fits) return {labels, is_one ? "classification" : "multi-label"};
    }
    if (const TrainField* masks = find(fields, "masks")) {
        const bool fits = masks->shape.size() == 2 && input.shape.size() > 1 &&
                          masks->side(1) == input.side(1) && masks->side(2) == input.side(2) &&
                          masks->has_classes(most_segments - 1);
        if (fits) return {masks, "segmentation"};
    }
    const TrainField* targets = find(fields, "targets");
    return {targets && targets->shape.size() <= 1 ? targets : nullptr, "regression"};
}

// Of samples that there are, and not so many that they take much memory.
std::string batch_option(const TrainField& input, std::uint64_t most = usual_batch) {
    const std::uint64_t batch =
        std::bit_floor(std::clamp<std::uint64_t>(std::min(most, input.samples), 1, usual_batch));
    return batch == usual_batch ? "" : fmt::format(" --batch {}", batch);
}

// Batch norm has no statistics of the single sample that an epoch may end with.
std::string norm_options(const TrainField& input) {
    constexpr std::uint64_t most_pixels = 1 << 20;
    const std::uint64_t most =
        std::clamp<std::uint64_t>(std::bit_floor(most_pixels / input.pixels()), 2, usual_batch);
    const std::uint64_t batch = std::bit_floor(std::min(most, input.samples));
    const bool has_single = input.samples % batch == 1;
    return batch_option(input, most) + (has_single ? " --drop-last" : "");
}

// Nothing where no built-in model takes such samples.
std::optional<std::string> model_options(const TrainField& input, const Learned& learned) {
    constexpr std::uint64_t least_unet = 16, least_cnn = 4, most_cnn = 128 * 128;
    constexpr std::uint64_t most_tokens = 1 << 14;
    if (learned.task == "next-token")
        return " --model gpt" + batch_option(input, most_tokens / input.shape[0]);
    const std::uint64_t least = std::min(input.side(1), input.side(2));
    const bool has_norm = input.samples > 1;
    if (learned.task == "segmentation")
        return least < least_unet || !has_norm
                   ? std::nullopt
                   : std::optional(" --model unet" + norm_options(input));
    const bool is_picture = input.name == "images" && least >= least_cnn;
    if (is_picture && input.pixels() <= most_cnn) return batch_option(input);
    return is_picture && has_norm ? " --model resnet18" + norm_options(input)
                                  : " --model mlp" + batch_option(input);
}

std::string task_option(const std::vector<TrainField>& fields, const Learned& learned) {
    int tasks = 0;
    for (const char* name : {"labels", "targets", "masks", "tokens"})
        if (find(fields, name)) ++tasks;
    return tasks > 1 ? fmt::format(" --task {}", learned.task) : "";
}

std::string inputs_option(const TrainField& input) {
    const bool is_usual =
        input.name == "images" || input.name == "features" || input.name == "tokens";
    return is_usual ? "" : " --inputs " + input.name;
}

}  // namespace

TrainCommand train_command(const Seen& seen) {
    const std::vector<TrainField> fields = fields_of(seen);
    const TrainField* input = input_of(fields);
    if (!input) return {"", "nothing here can be a model's input"};
    const Learned learned = learned_of(fields, *input);
    if (!learned.field)
        return {"", "no labels, masks or targets with a row for each sample fit the input"};
    if (!input->is_sound() || !learned.field->is_sound())
        return {"", "some numbers are damaged or not finite"};
    const auto model = model_options(*input, learned);
    if (!model) return {"", "no built-in model takes samples of this size"};
    std::string options;
    for (const FieldMapping& mapping : seen.place.fields)
        options += " --field " + shell_word(mapping_text(mapping));
    return {fmt::format("lockstep train --data {}{}{}{}{}{}",
                        shell_word(seen.place.data.string()),
                        options,
                        task_option(fields, learned),
                        inputs_option(*input),
                        *model,
                        seen.place.run_option),
            ""};
}

}  // namespace lockstep
