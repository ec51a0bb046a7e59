// SPDX-License-Identifier: Apache-2.0
#include "task/classification.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/text_table.hpp"

#include "task/class_figures.hpp"
#include "task/field_task.hpp"

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::vector<float> balanced_weights(const Field& field) {
    const auto& counts = field.class_counts;
    const auto all =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    std::vector<float> weights;
    for (const std::uint64_t count : counts)
        weights.push_back(count == 0
                              ? 0.0F
                              : static_cast<float>(all / (static_cast<double>(counts.size()) *
                                                          static_cast<double>(count))));
    return weights;
}

std::vector<float> given_weights(const std::string& text, const Field& field) {
    std::vector<float> weights;
    bool are_numbers = true;
    for (const std::string& item : split(text, ',')) {
        const auto number = parse_real(item);
        are_numbers = are_numbers && number && *number >= 0;
        weights.push_back(static_cast<float>(number.value_or(0)));
    }
    check(are_numbers && weights.size() == field.class_counts.size(), [&] {
        return Error(
            "E103",
            fmt::format("--class-weights is '{}'", printable(text)),
            fmt::format("it must be none, balanced, or {} numbers of 0 or more", field.classes()),
            "give one weight for each class, with commas between");
    });
    bool has_weight = false;
    for (std::size_t i = 0; i < weights.size(); ++i)
        has_weight = has_weight || (weights[i] > 0 && field.class_counts[i] > 0);
    check(has_weight, [&] {
        return Error("E103",
                     fmt::format("--class-weights is '{}'", printable(text)),
                     "all classes that occur have the weight 0: nothing would be learned",
                     "give the classes that count a weight above 0");
    });
    return weights;
}

std::string class_name(const Field& field, std::size_t number) {
    return number < field.class_names.size() ? csv_cell(field.class_names[number])
                                             : fmt::format("{}", number);
}

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
        const std::int64_t scores = counts_scores() ? outputs() * 2 * score_bins(outputs()) : 0;
        return {{0}, std::vector<std::int64_t>(static_cast<std::size_t>(2 + pairs + scores))};
    }

    // Counts: right, among the first five, confusion, scores.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor logits = counted_rows(only(outputs), samples);
        const at::Tensor labels = counted_rows(samples.targets[0].tensor, samples);
        const at::Tensor found = logits.argmax(1);
        std::vector<at::Tensor> counts{found.eq(labels).sum(), in_top(logits, labels)};
        if (counts_confusion()) counts.push_back(confusion_counts(labels, found, this->outputs()));
        if (counts_scores()) counts.push_back(score_counts(logits.detach(), labels));
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
        if (!counts_confusion()) return result;
        const auto pairs = static_cast<std::size_t>(outputs() * outputs());
        const std::span<const std::int64_t> counts = std::span(sums.counts).subspan(2);
        result.confusion = confusion_csv(counts.first(pairs), field());
        const ClassFigures figures =
            class_figures(counts.first(pairs), counts.subspan(pairs), field());
        result.metrics.insert(figures.means.begin(), figures.means.end());
        result.by_class = figures.table;
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
    bool counts_scores() const { return outputs() <= few_classes; }

    at::Tensor in_top(const at::Tensor& logits, const at::Tensor& labels) const {
        if (outputs() <= few_classes) return torch::zeros({1}, labels.options());
        const at::Tensor first = std::get<1>(logits.topk(top, 1));
        return first.eq(labels.unsqueeze(1)).sum();
    }

    ClassLoss loss_;
};

}  // namespace

ClassLoss::ClassLoss(const TaskSettings& settings, const Field& field)
    : smoothing_(settings.label_smoothing), ignored_(settings.ignore_index) {
    const std::string& text = settings.class_weights;
    if (text != "none")
        weights_ = torch::tensor(text == "balanced" ? balanced_weights(field)
                                                    : given_weights(text, field));
}

at::Tensor ClassLoss::weights_for(const at::Tensor& logits) const {
    return weights_.defined() ? weights_.to(logits.device()) : weights_;
}

at::Tensor ClassLoss::sum(const at::Tensor& logits, const at::Tensor& classes) const {
    return at::cross_entropy_loss(
        logits, classes, weights_for(logits), at::Reduction::Sum, ignored_, smoothing_);
}

at::Tensor ClassLoss::of_each(const at::Tensor& logits, const at::Tensor& classes) const {
    return at::cross_entropy_loss(
        logits, classes, weights_for(logits), at::Reduction::None, ignored_, smoothing_);
}

at::Tensor confusion_counts(const at::Tensor& classes,
                            const at::Tensor& found,
                            std::int64_t number,
                            std::int64_t ignored) {
    const std::int64_t count = number * number;
    const at::Tensor cells = (classes * number + found).masked_fill(classes.eq(ignored), count);
    const at::Tensor flat = cells.flatten();
    if (flat.is_cpu()) return at::bincount(flat, {}, count + 1).narrow(0, 0, count);
    // The host would wait for bincount's number of bins. Whole numbers have one sum in any order.
    return at::zeros({count + 1}, flat.options())
        .scatter_add_(0, flat, at::ones_like(flat))
        .narrow(0, 0, count);
}

std::string confusion_csv(std::span<const std::int64_t> counts, const Field& field) {
    const auto number = static_cast<std::size_t>(field.classes());
    std::string text = "class";
    for (std::size_t found = 0; found < number; ++found) text += ',' + class_name(field, found);
    for (std::size_t one = 0; one < number; ++one) {
        text += '\n' + class_name(field, one);
        for (const std::int64_t count : counts.subspan(one * number, number))
            text += fmt::format(",{}", count);
    }
    return text + '\n';
}

std::unique_ptr<Task> make_classification(const TaskSettings& settings, const Field& labels) {
    return std::make_unique<Classification>(settings, labels);
}

}  // namespace lockstep
