// SPDX-License-Identifier: Apache-2.0
// Finds the command that trains on the fields, with a suitable model and batch, or the remedy if
// there is none. Tested: data/check/inspect_test.cpp; data/foreign_matrix and
// e2e/data_advice_test.cpp run the commands
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/manifest.hpp"

#include "format/labels.hpp"
#include "hdf5/contents.hpp"
#include "inspection.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_batch = 128;
constexpr std::uint64_t least_unet = 16;    // pixels of a side
constexpr double most_segments = 1024;      // classes of masks that training tells apart
constexpr std::size_t most_dimensions = 3;  // of a sample, for built-in models

// A target, and its name for --task.
struct Learned {
    const TrainField* field = nullptr;
    std::string_view task;
};

std::vector<TrainField> fields_of(const Inspection& all) {
    std::vector<TrainField> fields;
    for (const Field& field : all.index->fields()) {
        TrainField made{.name = field.name, .samples = all.index->samples()};
        made.shape.assign(field.shape.begin(), field.shape.end());
        if (has_channels_last(field))
            std::rotate(made.shape.begin(), made.shape.end() - 1, made.shape.end());
        made.data = all.data_of(field);
        fields.push_back(std::move(made));
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
        return !is_learned && field.shape.size() <= most_dimensions;
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

// Batch norm has no statistics of the single sample that an epoch may end with. Where not all files
// were opened nobody has counted the samples.
std::string norm_options(const TrainField& input, bool are_all_counted) {
    constexpr std::uint64_t most_pixels = 1 << 20;
    const std::uint64_t most =
        std::clamp<std::uint64_t>(std::bit_floor(most_pixels / input.pixels()), 2, usual_batch);
    const std::uint64_t batch = std::bit_floor(std::min(most, input.samples));
    const bool has_single = !are_all_counted || input.samples % batch == 1;
    return batch_option(input, most) + (has_single ? " --drop-last" : "");
}

// Returns nothing if no built-in model takes such samples.
std::optional<std::string> model_options(const TrainField& input,
                                         const Learned& learned,
                                         bool are_all_counted) {
    constexpr std::uint64_t least_cnn = 4, most_cnn = 128 * 128, most_tokens = 1 << 14;
    if (learned.task == "next-token")
        return " --model gpt" + batch_option(input, most_tokens / input.shape[0]);
    const std::uint64_t least = std::min(input.side(1), input.side(2));
    const bool has_norm = input.samples > 1;
    if (learned.task == "segmentation")
        return least < least_unet || !has_norm
                   ? std::nullopt
                   : std::optional(" --model unet" + norm_options(input, are_all_counted));
    const bool is_picture = input.name == "images" && least >= least_cnn;
    if (is_picture && input.pixels() <= most_cnn) return batch_option(input);
    return is_picture && has_norm ? " --model resnet18" + norm_options(input, are_all_counted)
                                  : " --model mlp" + batch_option(input);
}

std::string task_option(const std::vector<TrainField>& fields, const Learned& learned) {
    int tasks = 0;
    for (const char* name : {"labels", "targets", "masks", "tokens"})
        if (find(fields, name)) ++tasks;
    return tasks > 1 ? fmt::format(" --task {}", learned.task) : "";
}

// Files of others have no mean and deviation.
std::string input_options(const Inspection& all, const TrainField& input) {
    const bool is_scaled =
        !all.files.empty() && input.is_far_from_1() && input.name != "tokens" &&
        (input.shape.size() > 1 || statistics_axis(all.index->field(input.name)));
    const bool is_usual =
        input.name == "images" || input.name == "features" || input.name == "tokens";
    return (is_usual ? "" : " --inputs " + input.name) + (is_scaled ? " --normalise dataset" : "");
}

std::string run_option(const fs::path& place) {
    const std::string name = place.stem().string();
    const bool is_name = !name.empty() && name[0] != '.' && name.find_first_of("*?[,") == name.npos;
    return " --run " + shell_word("runs/" + (is_name ? name : "first"));
}

// Returns the files with the first of the fields of these names as data set `d` of Python's
// command.
AskedFiles asked_for(const Inspection& all, const std::vector<std::string>& names) {
    AskedFiles asked{.files = all.files};
    for (const std::string& name : names)
        asked.fields.push_back(*std::ranges::find(all.fields, name, &FieldMapping::name));
    return asked;
}

// Returns how a field of files of others is given; null for packed data.
const FieldMapping* mapping_of(const Inspection& all, const std::string& name) {
    const auto found = std::ranges::find(all.fields, name, &FieldMapping::name);
    return found == all.fields.end() ? nullptr : &*found;
}

std::string field_options(const Inspection& all) {
    std::string options;
    for (const FieldMapping& mapping : all.fields)
        options += " --field " + shell_word(mapping_text(mapping));
    return options;
}

// With the others as they are.
AskedFiles asked_first(const Inspection& all, const std::string& name) {
    AskedFiles asked{.files = all.files, .fields = all.fields};
    std::ranges::stable_partition(asked.fields,
                                  [&](const FieldMapping& field) { return field.name == name; });
    return asked;
}

std::string way_to_write(const Inspection& all,
                         const std::string& name,
                         const std::string& numbers) {
    if (all.files.empty())
        return fmt::format(
            "pack {} of NumPy's array x in place of '{}', where n is numpy", numbers, name);
    return "let h5py write them so, in a folder NAME that you give instead: " +
           rewrite_command(asked_first(all, name), 0, numbers);
}

// Returns what else numbers may be that were suggested as targets; "" if they can be nothing else.
std::string classes_instead(const Inspection& all, const Learned& learned) {
    if (all.is_of_fields() || learned.task != "regression" || !learned.field->shape.empty() ||
        !learned.field->may_be_classes())
        return "";
    if (learned.field->least() >= 0)
        return fmt::format(
            "it predicts numbers, as their name says; if these are classes, write --field {}",
            shell_word("labels=" + asked_for(all, {"targets"}).fields[0].hdf5_path + ":label"));
    // Files of a data set need not all have all classes.
    const std::string numbers = all.files.size() == 1
                                    ? "n.unique(x,return_inverse=1)[1]"
                                    : fmt::format("(x+{}).astype(int)", -learned.field->least());
    return "it predicts numbers, because classes are numbered from 0; if these are classes, " +
           way_to_write(all, learned.field->name, numbers);
}

// Returns what a user of the train line should know; "" if it needs no words.
std::string remark(const Inspection& all, const TrainField& input, const Learned& learned) {
    constexpr std::uint64_t most_channels = 4;
    const FieldMapping* const given = mapping_of(all, input.name);
    const TrainField& target = *learned.field;
    if (!all.is_of_fields() && given && given->cf && given->cf->instead)
        return fmt::format(
            "missing numbers of '{}' count as {}, the mean of those that are there; another number "
            "may stand behind ':cf='",
            given->hdf5_path,
            *given->cf->instead);
    if (learned.task == "regression" && target.is_constant())
        return fmt::format("all numbers of '{}' are {:.6g}: there is nothing to learn of them",
                           target.name,
                           target.least());
    const bool is_of_steps = target.shape.size() == 1 && target.shape[0] > 1 &&
                             input.shape.size() == 2 && input.shape[0] == target.shape[0];
    if (learned.task == "regression" && is_of_steps && target.may_be_classes())
        return fmt::format(
            "it predicts {} numbers; no built-in task learns a class for each step, but a program "
            "of yours that returns its own loss does, with --task program --inputs {} --inputs {}",
            target.shape[0],
            input.name,
            target.name);
    const bool has_slices = given && input.name == "images" && input.shape.size() == 3 &&
                            given->layout != RowLayout::hwc && input.shape[0] > most_channels;
    std::string classes = classes_instead(all, learned);
    if (!has_slices || all.is_of_fields() || !classes.empty()) return classes;
    return fmt::format(
        "it takes the {} slices of a sample for channels; a model of your own, such as one with "
        "Conv3d, takes volumes with a channel: {}",
        input.shape[0],
        way_to_write(all, input.name, "x[:,None]"));
}

// Returns the numbers of masks that have a further dimension; "" if `data` are no such masks.
std::string plane_of(const InspectedData& data, const TrainField& input) {
    if (data.size.size() != 4 || data.size[0] != input.samples) return "";
    const bool is_mask = data.values && data.values->are_whole && data.values->least >= 0;
    const auto has_sides = [&](std::size_t first) {
        return data.size[first] == input.side(2) && data.size[first + 1] == input.side(1);
    };
    const bool is_last = has_sides(1);
    if (!is_mask || (!is_last && !has_sides(2))) return "";
    if (data.size[is_last ? 3 : 1] == 1)
        return fmt::format("x.reshape(len(x),{},{})", input.side(2), input.side(1));
    return data.values->most == 1 ? fmt::format("x.argmax({})", is_last ? -1 : 1) : "";
}

// Returns how other data of the file may become what is learned; "" if none may.
std::string way_to_learn(const Inspection& all, const TrainField& input) {
    AskedFiles asked = asked_for(all, {input.name});
    const FieldMapping given = asked.fields[0];
    const auto size = std::ranges::find(all.all, given.hdf5_path, &InspectedData::name);
    if (size == all.all.end()) return "";
    const auto ask_for = [&](const char* name, const InspectedData& data) {
        asked.fields.push_back({.name = name, .hdf5_path = data.name});
    };
    const std::string written = "let h5py write it so, in a folder NAME that you give instead: ";
    for (const InspectedData& data : all.all)
        if (const std::string plane = plane_of(data, input); !plane.empty() && &data != &*size) {
            ask_for("masks", data);
            return fmt::format(
                "if '{}' are masks, {}{}", data.name, written, rewrite_command(asked, 1, plane));
        }
    for (const InspectedData& data : all.all)
        if (&data != &*size && data.obstacle.empty() && data.values && data.size.size() <= 2 &&
            data.size[0] == input.samples)
            return fmt::format(
                "if '{0}' is to be predicted, say so: lockstep data inspect {1} "
                "--field {2} --field {3}",
                data.name,
                shell_word(all.data.string()),
                shell_word(mapping_text(given)),
                shell_word("targets=" + data.name + ":value"));
    for (const InspectedData& data : all.all)
        if (data.obstacle.empty() && data.size.size() == 1 && data.size[0] == size->size.back()) {
            ask_for("labels", data);
            return fmt::format("if the last dimension of '{}' counts samples, as '{}' does, {}{}",
                               given.hdf5_path,
                               data.name,
                               written,
                               rewrite_command(asked, 0, "n.moveaxis(x,-1,0)"));
        }
    return "";
}

TrainCommand nothing_to_learn(const Inspection& all, const TrainField& input) {
    if (input.name == "tokens")
        return {"",
                "a sample has fewer than two tokens, or their numbers are not 0 and more",
                way_to_write(all, input.name, "n.clip(x,0,None)")};
    const std::string obstacle =
        "no labels, masks or targets with a row for each sample fit the input '" + input.name + "'";
    if (all.files.empty())
        return {"",
                obstacle,
                fmt::format("pack the source again, with labels: lockstep data pack --npy {}=X.npy "
                            "--npy labels=Y.npy --out NAME",
                            input.name)};
    if (std::string way = way_to_learn(all, input); !way.empty()) return {"", obstacle, way};
    const AskedFiles asked = asked_for(all, {input.name});
    const bool is_taken = asked.fields[0].hdf5_path == "/labels";
    return {"", obstacle, way_to_add(asked, "the labels", is_taken ? "classes" : "labels")};
}

// Masks grow with their images.
TrainCommand too_small(const Inspection& all, const TrainField& input) {
    if (input.samples < 2)
        return {"", "the built-in unet normalises over samples, and there is one", "add samples"};
    const std::string obstacle =
        fmt::format("the built-in unet takes images of at least {0} x {0} pixels", least_unet);
    if (all.files.empty())
        return {"", obstacle, "pack the source again, with larger images and masks"};
    const std::uint64_t least = std::min(input.side(1), input.side(2));
    const auto repeated = [&](const char* array, int from_end) {
        return fmt::format("n.repeat(n.repeat({0},{1},-{2}),{1},-{3})",
                           array,
                           (least_unet + least - 1) / least,
                           from_end,
                           from_end + 1);
    };
    const AskedFiles asked = asked_for(all, {input.name, "masks"});
    const bool is_last = asked.fields[0].layout == RowLayout::hwc;
    return {"",
            obstacle,
            "let h5py repeat pixels, in a folder NAME that you give instead: " +
                write_anew_command(asked,
                                   0,
                                   fmt::format("{{d:{},r[0]:{}}}",
                                               repeated("x", is_last ? 2 : 1),
                                               repeated("i[r.pop(0)][()]", 1)))};
}

// Returns the remedy for numbers that nobody can learn. A number in their place would be learned.
std::string way_to_leave_out(const Inspection& all, const std::string& name) {
    if (all.files.empty())
        return fmt::format(
            "pack v[k] in place of each of NumPy's arrays v, where n is numpy, y the array of '{}' "
            "and k=n.isfinite(y).reshape(len(y),-1).all(1)",
            name);
    const AskedFiles asked = asked_first(all, name);
    for (const FieldMapping& field : asked.fields)
        if (field.file != asked.fields[0].file)
            return "leave out these samples in the files of all fields";
    return "leave out these samples by h5py, in a folder NAME that you give instead: " +
           write_anew_command(asked,
                              0,
                              "{k:i[k][()][n.isfinite(x).reshape(len(x),-1).all(1)] for k in "
                              "[d]+[r.pop(0) for _ in r[:]]}");
}

FieldMapping with_instead(FieldMapping mapping, double number) {
    mapping.cf = CfValues{number};
    return mapping;
}

// Returns the remedy for numbers that a model cannot take.
std::optional<TrainCommand> unsound(const Inspection& all,
                                    const TrainField& field,
                                    const TrainField& input) {
    if (field.is_damaged())
        return TrainCommand{
            "",
            "some numbers of '" + field.name + "' cannot be read: " + field.data->fault,
            field.data->remedy};
    const FieldMapping* mapping = mapping_of(all, field.name);
    const std::optional<CfValues> cf = mapping ? mapping->cf : std::nullopt;
    if (field.is_finite()) return {};
    if (cf && !(cf->instead && std::isfinite(*cf->instead)))
        return TrainCommand{
            "",
            "attributes say that some numbers of '" + field.name + "' are missing",
            &field == &input
                ? fmt::format("write what counts in their place: --field {}",
                              shell_word(mapping_text(with_instead(*mapping, 0))))
                : "leave these samples out of the files: a number in its place would be learned"};
    const std::string way = "n.nan_to_num(x,posinf=0,neginf=0)";
    return TrainCommand{"",
                        "some numbers of '" + field.name + "' are not finite",
                        &field == &input
                            ? "if 0 may stand for them, " + way_to_write(all, field.name, way)
                            : way_to_leave_out(all, field.name)};
}

}  // namespace

std::string way_to_add(const AskedFiles& asked, const std::string& what, const std::string& name) {
    return fmt::format(
        "save {} of each FILE with numpy as FILE.npy, one row for each sample; then let h5py write "
        "both into a folder NAME that you give instead: {}",
        what,
        write_anew_command(asked, 0, fmt::format("{{d:x,\"{}\":n.load(f+\".npy\")}}", name)));
}

TrainCommand train_command(const Inspection& all) {
    const std::vector<TrainField> fields = fields_of(all);
    const TrainField* input = input_of(fields);
    const auto larger = std::ranges::find_if(
        fields, [](const TrainField& field) { return field.shape.size() > most_dimensions; });
    if (!input && larger != fields.end())
        return {"",
                fmt::format("samples of '{}' have more dimensions than the input of a built-in "
                            "model; one of your own takes them: --model FILE{}",
                            larger->name,
                            field_options(all)),
                way_to_write(all,
                             larger->name,
                             larger->shape.size() == most_dimensions + 1
                                 ? "x.reshape(len(x),-1,*x.shape[3:])"
                                 : "x.reshape(len(x),-1)")};
    if (!input)
        return {"",
                "none of the fields can be a model's input",
                "name one with up to three dimensions for each sample 'images' or 'features'"};
    const Learned learned = learned_of(fields, *input);
    if (!learned.field) return nothing_to_learn(all, *input);
    for (const TrainField* each : {input, learned.field})
        if (auto obstacle = unsound(all, *each, *input)) return *obstacle;
    const auto model = model_options(*input, learned, all.others.opened == all.others.files);
    if (!model) return too_small(all, *input);
    const bool follows_links = std::ranges::any_of(
        all.fields, [](const FieldMapping& field) { return field.links == Links::followed; });
    return {fmt::format("lockstep train --data {}{}{}{}{}{}{}",
                        shell_word(all.data.string()),
                        field_options(all),
                        follows_links ? " --follow-links" : "",
                        task_option(fields, learned),
                        input_options(all, *input),
                        *model,
                        run_option(all.data)),
            "",
            remark(all, *input, learned)};
}

}  // namespace lockstep
