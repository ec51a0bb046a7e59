// SPDX-License-Identifier: Apache-2.0
#include "task/task.hpp"

#include "lockstep/core/error.hpp"

#include "model/wrapped_model.hpp"
#include "task/field_task.hpp"
#include "task/input.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

namespace {

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
    check(kind == TaskKind::classification || !pipeline.mixes_labels(), [&] {
        return Error(
            "E248",
            fmt::format("'{}' does not go with {}", pipeline.text(), target_rule(kind).task),
            "samples are mixed by their classes",
            "drop --transform, or its mixing");
    });
}

std::unique_ptr<Task> task_of_program(const TrainSettings& settings,
                                      const TransformPipeline& pipeline) {
    const std::string& model = settings.model.name;
    check(source_of(model) != ModelSource::script && find_built_in(model) == nullptr, [&] {
        return Error("E106",
                     fmt::format("--task program does not go with --model {}", model),
                     "only a program of torch.export or a class of your own returns its own loss",
                     "use --model FILE.pt2, or a plug-in whose class has forward_named()");
    });
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

std::unique_ptr<Task> make_task(const TrainSettings& settings,
                                const DatasetIndex& data,
                                const TransformPipeline& pipeline) {
    if (settings.task.kind == TaskKind::program) return task_of_program(settings, pipeline);
    auto task = task_of_field(settings.task, data, pipeline);
    check_no_targets(data, settings.inputs);
    return task;
}

}  // namespace lockstep
