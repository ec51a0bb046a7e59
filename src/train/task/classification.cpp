// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "task/field_input.hpp"
#include "task/task.hpp"

#include <algorithm>
#include <utility>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

namespace functional = torch::nn::functional;

bool is_label_type(ElementType type) {
    return type == ElementType::u8 || type == ElementType::i32 || type == ElementType::i64;
}

const Field& label_field(const DatasetIndex& index) {
    const Field& labels = index.field("labels");
    check(is_label_type(labels.type) && labels.shape.empty() && labels.classes() > 0, [&] {
        return Error(
            "E217",
            fmt::format("data set '{}' has labels of another type or shape", index.path().string()),
            "classification takes 'labels' of whole numbers [n]",
            "pack or name them otherwise");
    });
    return labels;
}

Error other_classes(const DatasetIndex& test, const std::string& why) {
    return Error("E217",
                 fmt::format("test data '{}' do not fit the training data", test.path().string()),
                 why,
                 "pack both from one source");
}

at::Tensor labels_of(const LeafSource& source) {
    const std::size_t place = source.index.field_position("labels");
    const ElementType type = source.index.fields()[place].type;
    const std::byte* const first =
        source.batch.fields[place].data() + source.leaf.first_row * element_bytes(type);
    const auto rows = static_cast<std::int64_t>(source.leaf.rows);
    return torch::from_blob(const_cast<std::byte*>(first), {rows}, stored_type(type))
        .to(torch::kInt64);
}

at::Tensor loss_of_each(const at::Tensor& logits, const at::Tensor& labels) {
    return functional::cross_entropy(
        logits, labels, functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

// Targets are the labels, and where samples are mixed their partners' and the labels' share.
class Classification : public Task {
  public:
    explicit Classification(const Field& labels)
        : classes_(labels.classes()), names_(labels.class_names) {}

    std::int64_t outputs() const override { return classes_; }

    void check_test_data(const DatasetIndex& test) const override {
        const Field& labels = label_field(test);
        check(labels.classes() <= classes_, [&] {
            return other_classes(
                test,
                fmt::format(
                    "they have {} classes, the training data {}", labels.classes(), classes_));
        });
        check_class_names(test, labels.class_names);
    }

    NamedTensors targets(const LeafSource& source) const override {
        const at::Tensor labels = labels_of(source);
        if (source.mixed.empty()) return {{"labels", labels}};
        const MixedLabels both =
            mix_labels({labels.data_ptr<std::int64_t>(), source.leaf.rows}, source.mixed);
        return {{"labels", labels},
                {"partners", torch::tensor(both.second, torch::kInt64)},
                {"share", torch::tensor(both.lambda)}};
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"labels", torch::arange(count).remainder(classes_)}};
    }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor &logits = only(outputs), &labels = samples.targets[0].tensor;
        const bool is_mixed = samples.targets.size() > 1;
        if (!is_mixed && !samples.weights.defined())
            return functional::cross_entropy(
                logits, labels, functional::CrossEntropyFuncOptions().reduction(torch::kSum));
        at::Tensor losses = loss_of_each(logits, labels);
        if (is_mixed) {
            const at::Tensor &partners = samples.targets[1].tensor,
                             &share = samples.targets[2].tensor;
            losses = losses * share + loss_of_each(logits, partners) * (1 - share);
        }
        if (samples.weights.defined()) losses = losses * samples.weights;
        return losses.sum();
    }

    TaskSums no_sums() const override { return {{0}, {0}}; }

    TaskSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        at::Tensor right = only(outputs).argmax(1).eq(samples.targets[0].tensor);
        if (samples.weights.defined()) right = right.logical_and(samples.weights.gt(0));
        return {{loss(outputs, samples).item<float>()}, {right.sum().item<std::int64_t>()}};
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const std::int64_t right = sums.counts[0];
        const double accuracy = static_cast<double>(right) / static_cast<double>(samples);
        return {.loss = sums.reals[0] / static_cast<double>(samples),
                .metrics = {{"accuracy", accuracy}},
                .text = fmt::format("accuracy {:.2f} % ({} of {})",
                                    100 * accuracy,
                                    grouped(static_cast<std::uint64_t>(right)),
                                    grouped(static_cast<std::uint64_t>(samples)))};
    }

  private:
    // A test set that lacks a class numbers the others in another way. Sets without names are
    // trusted.
    void check_class_names(const DatasetIndex& test, const std::vector<std::string>& tested) const {
        for (std::size_t i = 0; i < std::min(tested.size(), names_.size()); ++i)
            check(tested[i] == names_[i], [&] {
                return other_classes(
                    test,
                    fmt::format("class {} is '{}' there, '{}' in the training data",
                                i,
                                tested[i],
                                names_[i]));
            });
    }

    std::int64_t classes_;
    std::vector<std::string> names_;
};

}  // namespace

LeafSamples LeafSamples::part(std::int64_t first, std::int64_t count) const {
    const auto cut = [&](NamedTensors tensors) {
        for (NamedTensor& named : tensors) named.tensor = named.tensor.narrow(0, first, count);
        return tensors;
    };
    return {
        cut(inputs), cut(targets), weights.defined() ? weights.narrow(0, first, count) : weights};
}

std::unique_ptr<Task> make_task(const DatasetIndex& data) {
    return make_classification(label_field(data));
}

std::unique_ptr<Task> make_classification(const Field& labels) {
    return std::make_unique<Classification>(labels);
}

}  // namespace lockstep
