// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "task/class_loss.hpp"
#include "task/field_task.hpp"

#include <span>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_confused = 256;  // classes whose confusion is counted
constexpr std::int64_t few_classes = 10;     // top-5 says little about these
constexpr std::int64_t top = 5;

// Targets are the labels, and where samples are mixed their partners' and the labels' share.
class Classification : public FieldTask {
  public:
    Classification(const TaskSettings& settings, const Field& labels)
        : FieldTask(TaskKind::classification, labels), loss_(settings, labels) {}

    NamedTensors targets(const LeafSource& source) const override {
        NamedTensors targets = FieldTask::targets(source);
        if (source.mixed.empty()) return targets;
        const MixedLabels both = mix_labels(
            {targets[0].tensor.data_ptr<std::int64_t>(), source.leaf.rows}, source.mixed);
        targets.push_back({"partners", torch::tensor(both.second, torch::kInt64)});
        targets.push_back({"share", torch::tensor(both.lambda)});
        return targets;
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"labels", torch::arange(count).remainder(outputs())}};
    }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const bool is_plain = samples.targets.size() == 1 && !samples.weights.defined();
        return is_plain ? loss_.sum(only(outputs), samples.targets[0].tensor)
                        : FieldTask::loss(outputs, samples);
    }

    TaskSums no_sums() const override {
        const std::int64_t pairs = counts_confusion() ? outputs() * outputs() : 0;
        return {{0}, std::vector<std::int64_t>(static_cast<std::size_t>(2 + pairs))};
    }

    // Counts: right, among the first five, confusion.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor logits = counted_rows(only(outputs), samples);
        const at::Tensor labels = counted_rows(samples.targets[0].tensor, samples);
        const at::Tensor found = logits.argmax(1);
        std::vector<at::Tensor> counts{found.eq(labels).sum(), in_top(logits, labels)};
        if (counts_confusion()) counts.push_back(confusion_counts(labels, found, this->outputs()));
        return sums_of({loss(outputs, samples)}, counts);
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = static_cast<double>(samples);
        const std::int64_t right = sums.counts[0];
        Evaluation result{.metrics = {{"loss", sums.reals[0] / count},
                                      {"accuracy", static_cast<double>(right) / count}},
                          .text = fmt::format("accuracy {} ({} of {})",
                                              percent(static_cast<double>(right) / count),
                                              grouped(static_cast<std::uint64_t>(right)),
                                              grouped(static_cast<std::uint64_t>(samples))),
                          .confusion = {}};
        if (outputs() > few_classes) {
            const double share = static_cast<double>(sums.counts[1]) / count;
            result.metrics["top5"] = share;
            result.text += ", top-5 " + percent(share);
        }
        if (counts_confusion())
            result.confusion = confusion_csv(std::span(sums.counts).subspan(2), field());
        return result;
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const NamedTensors& targets = samples.targets;
        const at::Tensor own = loss_.of_each(logits, targets[0].tensor);
        if (targets.size() == 1) return own;
        const at::Tensor& share = targets[2].tensor;
        return own * share + loss_.of_each(logits, targets[1].tensor) * (1 - share);
    }

  private:
    bool counts_confusion() const { return outputs() <= most_confused; }

    at::Tensor in_top(const at::Tensor& logits, const at::Tensor& labels) const {
        if (outputs() <= few_classes) return torch::zeros({1}, labels.options());
        const at::Tensor first = std::get<1>(logits.topk(top, 1));
        return first.eq(labels.unsqueeze(1)).sum();
    }

    ClassLoss loss_;
};

}  // namespace

std::unique_ptr<Task> make_classification(const TaskSettings& settings, const Field& labels) {
    return std::make_unique<Classification>(settings, labels);
}

}  // namespace lockstep
