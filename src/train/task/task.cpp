// SPDX-License-Identifier: Apache-2.0
#include "task/task.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include "model/model.hpp"
#include "task/field_input.hpp"
#include "task/input.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {

/// The fields from which a task takes its targets.
struct TargetRule {
    enum class Holds { classes, flags, numbers };
    std::string_view task, field;
    Holds holds = Holds::classes;
    std::size_t least_dimensions = 0, most_dimensions = 0;  ///< dimensions of one sample
    std::string_view form;                                  ///< for people: "whole numbers [n]"
};

namespace {

using Holds = TargetRule::Holds;

// In the order of TaskKind, without `automatic`.
constexpr std::array rules{
    TargetRule{"classification", "labels", Holds::classes, 0, 0, "whole numbers [n]"},
    TargetRule{"multi-label", "labels", Holds::flags, 1, 1, "numbers from 0 to 1 [n, K]"},
    TargetRule{"regression", "targets", Holds::numbers, 0, 1, "numbers [n] or [n, K]"},
    TargetRule{"segmentation", "masks", Holds::classes, 2, 2, "whole numbers [n, H, W]"},
    TargetRule{"next-token", "tokens", Holds::classes, 1, 1, "whole numbers [n, T + 1]"},
    TargetRule{"program", "", Holds::numbers, 0, 0, ""}};

const TargetRule& target_rule(TaskKind kind) {
    return rules.at(static_cast<std::size_t>(kind) - 1);
}

bool fits(const Field& field, const TargetRule& rule) {
    const std::size_t dimensions = field.shape.size();
    return dimensions >= rule.least_dimensions && dimensions <= rule.most_dimensions &&
           (rule.holds != Holds::classes || (!is_real(field.type) && field.classes() > 0));
}

// A name or a layout that the field can have, or numbers of another shape.
std::string way_to_fit(const DatasetIndex& data, std::size_t place, const TargetRule& rule) {
    const Field& field = data.fields()[place];
    const std::size_t dimensions = field.shape.size();
    const std::string name(rule.field);
    std::vector<std::int64_t> sides = field.shape;  // without 1s that are more than a plane has
    for (auto one = sides.begin(); sides.size() > 2 && one != sides.end();)
        one = *one == 1 ? sides.erase(one) : one + 1;
    if (rule.holds == Holds::classes && dimensions >= rule.least_dimensions &&
        dimensions <= rule.most_dimensions)
        return fmt::format("{} if these are whole numbers, or {} to predict numbers",
                           way_to_rename(data, place, name, ":label"),
                           way_to_rename(data, place, "targets"));
    if (name == "masks" && dimensions > 2 && sides.size() == 2)
        return way_to_rewrite(
            data, place, fmt::format("x.reshape(len(x), {}, {})", sides[0], sides[1]));
    if (name == "masks" && dimensions == 3 && sides.size() == 3)
        return "if each class has a plane of its own, " +
               way_to_rewrite(
                   data, place, may_have_channels_last(sides) ? "x.argmax(-1)" : "x.argmax(1)");
    if (name == "labels" && dimensions == 2)
        return way_to_rename(data, place, "masks", is_real(field.type) ? ":label" : "");
    if (dimensions < 2) return way_to_rename(data, place, dimensions == 0 ? "labels" : "targets");
    return way_to_rewrite(data, place, "x.reshape(len(x), -1)");
}

// Errors: E207 if there is none that the rule names, E217 if it has another type or shape.
const Field& target_field(const DatasetIndex& data, const TargetRule& rule) {
    const std::size_t place = data.field_position(rule.field);
    const Field& field = data.fields()[place];
    check(fits(field, rule), [&] {
        return Error("E217",
                     fmt::format("'{}' of '{}' are {} [{}]",
                                 rule.field,
                                 data.place(),
                                 element_name(field.type),
                                 fmt::join(field.shape, ", ")),
                     fmt::format("{} takes '{}' of {}", rule.task, rule.field, rule.form),
                     way_to_fit(data, place, rule));
    });
    return field;
}

constexpr std::size_t most_named = 20;

// By class of `tested`, the number of that name in training; -1 where it has none. Empty: all are
// alike. Sets without names are trusted.
ClassNumbers numbers_of(const Field& tested, const Field& trained) {
    const auto &there = tested.class_names, &here = trained.class_names;
    if (there.empty() || here.empty() || there == here) return {};
    std::map<std::string_view, std::int64_t> numbers;
    for (const std::string& name : here)
        numbers.emplace(name, static_cast<std::int64_t>(numbers.size()));
    ClassNumbers found;
    for (const std::string& name : there) {
        const auto number = numbers.find(name);
        found.push_back(number == numbers.end() ? -1 : number->second);
    }
    return found;
}

void check_class_names(const DatasetIndex& test, const Field& tested, const Field& trained) {
    const ClassNumbers numbers = numbers_of(tested, trained);
    for (std::size_t i = 0; i < numbers.size(); ++i)
        check(numbers[i] >= 0 || tested.class_counts[i] == 0, [&] {
            return other_data(test.place(),
                              fmt::format("class '{}' of '{}', which {} have, is none of the "
                                          "training data's",
                                          printable(tested.class_names[i]),
                                          tested.name,
                                          grouped(tested.class_counts[i])));
        });
}

// Nor do those below it that nobody has need an output.
Field without_void(Field field, std::int64_t ignored) {
    std::vector<std::uint64_t>& counts = field.class_counts;
    if (ignored < 0 || ignored + 1 != field.classes()) return field;
    do {
        counts.pop_back();
    } while (counts.size() > 1 && counts.back() == 0);
    return field;
}

bool has_field(const DatasetIndex& data, std::string_view name) {
    return std::ranges::count(data.fields(), name, &Field::name) > 0;
}

// In the order of TaskKind.
std::vector<TaskKind> fitting_tasks(const DatasetIndex& data) {
    std::vector<TaskKind> kinds;
    if (has_field(data, "labels"))
        kinds.push_back(data.field("labels").shape.empty() ? TaskKind::classification
                                                           : TaskKind::multi_label);
    if (has_field(data, "targets")) kinds.push_back(TaskKind::regression);
    if (has_field(data, "masks")) kinds.push_back(TaskKind::segmentation);
    if (has_field(data, "tokens")) kinds.push_back(TaskKind::next_token);
    return kinds;
}

// Only labels are mixed.
void check_transform(TaskKind kind, const TransformPipeline& pipeline) {
    check(kind == TaskKind::classification || !pipeline.mixes_labels(),
          "E248",
          fmt::format("'{}' does not go with {}", pipeline.text(), target_rule(kind).task),
          "samples are mixed by their classes",
          "drop --transform, or its mixing");
}

std::unique_ptr<Task> task_of_program(const TrainSettings& settings,
                                      const TransformPipeline& pipeline) {
    const std::string& model = settings.model.name;
    check(source_of(model) != ModelSource::script && find_built_in(model) == nullptr,
          "E106",
          fmt::format("--task program does not go with --model {}", model),
          "only a program of torch.export or a class of your own returns its own loss",
          "use --model FILE.pt2, or a plug-in whose class has forward_named()");
    check_transform(TaskKind::program, pipeline);
    return make_program_task();
}

std::unique_ptr<Task> task_of_field(const TaskSettings& settings,
                                    const DatasetIndex& data,
                                    const TransformPipeline& pipeline) {
    const TaskKind kind = choose_task(settings, data);
    const Field& field = target_field(data, target_rule(kind));
    check_transform(kind, pipeline);
    if (kind == TaskKind::multi_label) return make_multi_label(settings, field);
    if (kind == TaskKind::regression) return make_regression(settings, field);
    if (kind == TaskKind::segmentation) return make_segmentation(settings, field, pipeline);
    if (kind == TaskKind::next_token) return make_next_token(settings, field);
    return make_classification(settings, field);
}

}  // namespace

LeafSamples LeafSamples::part(std::int64_t first, std::int64_t count) const {
    const auto cut = [&](NamedTensors tensors) {
        for (NamedTensor& named : tensors) named.tensor = named.tensor.narrow(0, first, count);
        return tensors;
    };
    return {
        cut(inputs), cut(targets), weights.defined() ? weights.narrow(0, first, count) : weights};
}

LeafSamples LeafSamples::with_targets_on(at::Device device) const {
    if (device.is_cpu()) return *this;
    return {inputs, moved_to(device, targets), weights.defined() ? weights.to(device) : weights};
}

TaskSums SampleSums::on_host() const {
    const auto numbers = [](const at::Tensor& tensor, auto zero) {
        const at::Tensor dense = tensor.cpu().contiguous();
        const auto* const first = dense.const_data_ptr<decltype(zero)>();
        return std::vector<decltype(zero)>(first, first + dense.numel());
    };
    return {numbers(reals, 0.0), numbers(counts, std::int64_t{0})};
}

TaskKind choose_task(const TaskSettings& settings, const DatasetIndex& data) {
    if (settings.kind != TaskKind::automatic) return settings.kind;
    const std::vector<TaskKind> kinds = fitting_tasks(data);
    check(kinds.size() <= 1, [&] {
        std::vector<std::string_view> names;
        for (const TaskKind kind : kinds) names.push_back(target_rule(kind).task);
        return Error("E217",
                     fmt::format("data set '{}' has fields for several tasks: {}",
                                 data.place(),
                                 fmt::join(names, ", ")),
                     "--task does not name one of them",
                     fmt::format("use --task {}", names.front()));
    });
    return kinds.empty() ? TaskKind::classification : kinds.front();
}

std::string_view task_name(TaskKind kind) {
    return target_rule(kind).task;
}

std::unique_ptr<Task> make_task(const TrainSettings& settings,
                                const DatasetIndex& data,
                                const TransformPipeline& pipeline) {
    if (settings.task.kind == TaskKind::program) return task_of_program(settings, pipeline);
    auto task = task_of_field(settings.task, data, pipeline);
    check_no_targets(data, settings.inputs);
    return task;
}

FieldTask::FieldTask(TaskKind kind, Field field, std::int64_t ignored)
    : rule_(target_rule(kind)),
      ignored_(ignored),
      field_(without_void(std::move(field), ignored)) {}

void FieldTask::check_test_data(const DatasetIndex& test) const {
    // Files of others may have it: field_position() says how to name it.
    const bool may_have = test.manifest().kind == ManifestKind::foreign;
    check(
        may_have || has_field(test, rule_.field),
        "E207",
        fmt::format("data set '{}' has no '{}' to compare outputs with", test.place(), rule_.field),
        "",
        fmt::format("give data with '{}', or write the outputs alone: lockstep "
                    "predict RUN --data {} --out FILE",
                    rule_.field,
                    shell_word(test.place())));
    const Field tested = without_void(target_field(test, rule_), ignored_);
    check(tested.shape == field_.shape, [&] {
        return other_data(test.place(), fmt::format("{} have another shape", rule_.field));
    });
    const bool has_names = !tested.class_names.empty() && !field_.class_names.empty();
    const bool may_have_more = rule_.holds != Holds::classes || has_names;
    check(may_have_more || tested.classes() <= field_.classes(), [&] {
        return other_data(
            test.place(),
            fmt::format(
                "they have {} classes, the training data {}", tested.classes(), field_.classes()));
    });
    check_class_names(test, tested, field_);
}

ClassNumbers FieldTask::class_numbers(const DatasetIndex& data) const {
    if (rule_.holds != Holds::classes) return {};
    const auto found = std::ranges::find(data.fields(), rule_.field, &Field::name);
    return found == data.fields().end() ? ClassNumbers{} : numbers_of(*found, field_);
}

std::string FieldTask::classes_text() const {
    const std::vector<std::string>& names = field_.class_names;
    if (rule_.holds != Holds::classes || names.empty()) return "";
    std::string text = fmt::format("classes of {}:", field_.name);
    for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i)
        text += fmt::format("{} {} {}", i == 0 ? "" : ",", i, printable(names[i]));
    if (names.size() > most_named)
        text += fmt::format(", and {} more", grouped(names.size() - most_named));
    return text;
}

std::string FieldTask::class_warning() const {
    if (rule_.holds != Holds::classes) return "";
    check(field_.classes() > 1,
          "E217",
          fmt::format("'{}' has one class only, 0", field_.name),
          "there is nothing to learn: each output is right, and the loss is 0",
          "give data of at least two classes; 'lockstep data pack --classes N' declares "
          "classes that these data do not have");
    check_class_numbers(field_);
    return unused_classes_text(field_);
}

at::Tensor FieldTask::stored_targets(const LeafSource& source) const {
    const std::size_t place = source.index.field_position(std::string(rule_.field));
    const Field& stored = source.index.fields()[place];
    const auto rows =
        source.batch.fields[place].subspan(source.leaf.first_row * stored.bytes_per_sample());
    return stored_rows(rows, stored, source.leaf.rows);
}

NamedTensors FieldTask::targets(const LeafSource& source) const {
    const at::Tensor rows = stored_targets(source);
    // A copy: the batch's memory is lent.
    const bool has_classes = rule_.holds == Holds::classes;
    const at::ScalarType type = has_classes ? torch::kInt64 : torch::kFloat32;
    const at::Tensor own = rows.to(type, /*non_blocking=*/false, /*copy=*/true);
    if (source.classes.empty()) return {{std::string(rule_.field), own}};
    const at::Tensor numbers = torch::tensor(at::ArrayRef<std::int64_t>(source.classes));
    return {{std::string(rule_.field), numbers.index({own})}};
}

at::Tensor FieldTask::loss(const NamedTensors& outputs, const LeafSamples& samples) const {
    return sum_of_each(losses(only(outputs), samples), samples);
}

Error other_data(const std::string& place, const std::string& why, const std::string& fix) {
    return Error(
        "E217", fmt::format("test data '{}' do not fit the training data", place), why, fix);
}

at::Tensor blank_numbers(at::IntArrayRef extents, std::int64_t below) {
    return torch::arange(c10::multiply_integers(extents)).remainder(below).reshape(extents);
}

at::Tensor sum_of_each(const at::Tensor& each, const LeafSamples& samples) {
    return (samples.weights.defined() ? each * samples.weights : each).sum();
}

at::Tensor mean_of_each(const at::Tensor& values) {
    return values.dim() > 1 ? values.flatten(1).mean(1) : values;
}

at::Tensor counted_rows(const at::Tensor& rows, const LeafSamples& samples) {
    return samples.weights.defined() ? rows.index({samples.weights.gt(0)}) : rows;
}

SampleSums sums_of(const std::vector<at::Tensor>& reals, const std::vector<at::Tensor>& counts) {
    const auto all = [](const std::vector<at::Tensor>& parts, at::ScalarType type) {
        std::vector<at::Tensor> flat;
        for (const at::Tensor& part : parts) flat.push_back(part.detach().reshape(-1).to(type));
        return at::cat(flat);
    };
    // A loss says where the numbers are.
    const at::Tensor none = torch::empty({0}, reals.front().options().requires_grad(false));
    return {all(reals, torch::kFloat64),
            counts.empty() ? none.to(torch::kInt64) : all(counts, torch::kInt64)};
}

std::string percent(double share) {
    return fmt::format("{:.2f} %", 100 * share);
}

}  // namespace lockstep
