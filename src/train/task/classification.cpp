// SPDX-License-Identifier: Apache-2.0
// The tasks of one class for each sample or pixel.
//
// Tested: train/task/tasks_test.cpp (figures of classes against pairs counted one by one).
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/text_table.hpp"

#include "task/task.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
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
    const auto classes = static_cast<double>(counts.size());
    std::vector<float> weights;
    for (const std::uint64_t count : counts)
        weights.push_back(
            count == 0 ? 0.0F : static_cast<float>(all / (classes * static_cast<double>(count))));
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
    const auto refusal = [&](const std::string& why, const char* fix) {
        return Error("E103", fmt::format("--class-weights is '{}'", printable(text)), why, fix);
    };
    check(are_numbers && weights.size() == field.class_counts.size(), [&] {
        return refusal(
            fmt::format("it must be none, balanced, or {} numbers of 0 or more", field.classes()),
            "give one weight for each class, with commas between");
    });
    bool has_weight = false;
    for (std::size_t i = 0; i < weights.size(); ++i)
        has_weight = has_weight || (weights[i] > 0 && field.class_counts[i] > 0);
    check(has_weight, [&] {
        return refusal("all classes that occur have the weight 0: nothing would be learned",
                       "give the classes that count a weight above 0");
    });
    return weights;
}

/// Cross entropy with a weight for each class, and smoothed labels (Szegedy et al.,
/// https://arxiv.org/abs/1512.00567), as in torch.nn.CrossEntropyLoss.
class ClassLoss {
  public:
    /// "balanced" weighs class c with samples / (classes * samples of c), so that the mean over
    /// the data is 1. Errors: E103 for weights that are not one number >= 0 for each class of
    /// `field`.
    ClassLoss(const TaskSettings& settings, const Field& field)
        : smoothing_(settings.label_smoothing), ignored_(settings.ignore_index) {
        const std::string& text = settings.class_weights;
        if (text != "none")
            weights_ = torch::tensor(text == "balanced" ? balanced_weights(field)
                                                        : given_weights(text, field));
    }

    /// Returns the loss of each class i64 [n, ...] for logits [n, classes, ...], or their sum; a
    /// class of weight w counts w times, and the settings' ignore_index not at all.
    at::Tensor operator()(const at::Tensor& logits,
                          const at::Tensor& classes,
                          at::Reduction::Reduction reduction = at::Reduction::None) const {
        const at::Tensor weights = weights_.defined() ? weights_.to(logits.device()) : weights_;
        return at::cross_entropy_loss(logits, classes, weights, reduction, ignored_, smoothing_);
    }

  private:
    at::Tensor weights_;  ///< f32 [classes]; undefined: all are 1
    double smoothing_;
    std::int64_t ignored_;
};

std::string class_name(const Field& field, std::size_t number) {
    return number < field.class_names.size() ? csv_cell(field.class_names[number])
                                             : fmt::format("{}", number);
}

// Returns one line per true class, with its name or number: the counts of predicted classes.
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

// Returns the number of scores that are told apart in the ROC curve of each of so many classes: as
// many counts for any number of them.
constexpr std::int64_t score_bins(std::int64_t classes) {
    return (1 << 15) / std::max<std::int64_t>(classes, 1);
}

constexpr double most_log_odds = 16;
constexpr double no_figure = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_lines = 50, name_letters = 24;

double ratio(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : no_figure;
}

double area_of(std::span<const std::int64_t> others, std::span<const std::int64_t> own) {
    double pairs = 0, below = 0, all_own = 0;
    for (std::size_t bin = 0; bin < own.size(); ++bin) {
        const auto here = static_cast<double>(others[bin]), ours = static_cast<double>(own[bin]);
        pairs += ours * (below + here / 2);
        below += here;
        all_own += ours;
    }
    return below > 0 && all_own > 0 ? pairs / (below * all_own) : no_figure;
}

struct OneClass {
    std::int64_t samples = 0;
    double precision = 0, recall = 0, f1 = 0, area = no_figure;
};

std::string share_text(double value) {
    return value == value ? fmt::format("{:.4f}", value) : "-";
}

std::string table_of(const std::vector<OneClass>& classes, const Field& field, bool has_area) {
    std::string text;
    const auto add = [&](const std::string& name, const std::array<std::string, 5>& figures) {
        text += fmt::format("{:<{}}", name.substr(0, name_letters), name_letters);
        for (const std::string& figure : std::span(figures).first(has_area ? 5 : 4))
            text += fmt::format(" {:>9}", figure);
        text += '\n';
    };
    add("class", {"samples", "precision", "recall", "F1", "AUC"});
    for (std::size_t i = 0; i < std::min(classes.size(), most_lines); ++i) {
        const OneClass& one = classes[i];
        const std::string name = i < field.class_names.size()
                                     ? fmt::format("{} {}", i, printable(field.class_names[i]))
                                     : std::to_string(i);
        add(name,
            {grouped(static_cast<std::uint64_t>(one.samples)),
             share_text(one.precision),
             share_text(one.recall),
             share_text(one.f1),
             share_text(one.area)});
    }
    if (classes.size() > most_lines)
        text += fmt::format("and {} more classes; --confusion FILE has all\n",
                            classes.size() - most_lines);
    return text;
}

// Of those that have one.
double mean_of(const std::vector<OneClass>& classes, double OneClass::*figure) {
    double sum = 0;
    int count = 0;
    for (const OneClass& one : classes)
        if (one.*figure == one.*figure) {
            sum += one.*figure;
            ++count;
        }
    return count > 0 ? sum / count : no_figure;
}

// Returns i64 [classes * 2 * score_bins(classes)]: for each class, how many samples of other
// classes and of it have a score in each bin. A score is the log-odds of the class's probability,
// from -16 to 16.
at::Tensor score_counts(const at::Tensor& logits, const at::Tensor& labels) {
    const std::int64_t classes = logits.size(1), count = score_bins(classes);
    const at::Tensor shares = at::log_softmax(logits.to(at::kDouble), 1);
    const at::Tensor odds = (shares - at::log1p(-shares.exp())).nan_to_num(-most_log_odds);
    const at::Tensor bins =
        ((odds + most_log_odds) * (static_cast<double>(count) / (2 * most_log_odds)))
            .clamp(0, count - 1)
            .to(at::kLong);
    const at::Tensor numbers = at::arange(classes, labels.options());
    const at::Tensor is_own = labels.unsqueeze(1).eq(numbers).to(at::kLong);
    const at::Tensor cells = ((numbers * 2 + is_own) * count + bins).flatten();
    return at::zeros({classes * 2 * count}, cells.options())
        .scatter_add_(0, cells, at::ones_like(cells));
}

// Adds precision, recall, F1 and the area under the ROC curve of each class, and "f1" and, of
// scores, "auc": means over the classes that have samples or were predicted, or that have samples
// and are not all. Not a number if there is none.
// `confusion` is confusion_counts()'s, `scores` score_counts()'s; empty: without the area.
// F1 is 2 TP / (2 TP + FP + FN). The area is the share of pairs of a sample of the class and
// another in which the former has the higher score (Fawcett 2006,
// https://doi.org/10.1016/j.patrec.2005.10.010); pairs in one bin count half.
void add_figures(Evaluation& result,
                 std::span<const std::int64_t> confusion,
                 std::span<const std::int64_t> scores,
                 const Field& field) {
    const auto number = static_cast<std::size_t>(field.classes());
    std::vector<OneClass> classes(number);
    std::vector<std::int64_t> found(number);
    for (std::size_t i = 0; i < number * number; ++i) {
        classes[i / number].samples += confusion[i];
        found[i % number] += confusion[i];
    }
    for (std::size_t c = 0; c < number; ++c) {
        OneClass& one = classes[c];
        const std::int64_t right = confusion[c * number + c];
        one.precision = ratio(right, found[c]);
        one.recall = ratio(right, one.samples);
        one.f1 = ratio(2 * right, one.samples + found[c]);
        if (scores.empty()) continue;
        const auto bins = static_cast<std::size_t>(score_bins(field.classes()));
        one.area =
            area_of(scores.subspan(2 * c * bins, bins), scores.subspan((2 * c + 1) * bins, bins));
    }
    result.metrics["f1"] = mean_of(classes, &OneClass::f1);
    if (!scores.empty()) result.metrics["auc"] = mean_of(classes, &OneClass::area);
    result.by_class = table_of(classes, field, !scores.empty());
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
        return {{"labels", blank_numbers({count}, outputs())}};
    }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const bool is_plain = samples.targets.size() == 1 && !samples.weights.defined();
        return is_plain ? loss_(only(outputs), samples.targets[0].tensor, at::Reduction::Sum)
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
                                              grouped(static_cast<std::uint64_t>(samples)))};
        if (outputs() > few_classes) {
            const double share = static_cast<double>(sums.counts[1]) / count;
            result.metrics["top5"] = share;
            result.text += ", top-5 " + percent(share);
        }
        if (!counts_confusion()) return result;
        const auto pairs = static_cast<std::size_t>(outputs() * outputs());
        const std::span<const std::int64_t> counts = std::span(sums.counts).subspan(2);
        result.confusion = confusion_csv(counts.first(pairs), field_);
        add_figures(result, counts.first(pairs), counts.subspan(pairs), field_);
        return result;
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const NamedTensors& targets = samples.targets;
        const at::Tensor own = loss_(logits, targets[0].tensor);
        if (targets.size() == 1) return own;
        const at::Tensor& share = targets[2].tensor;
        return own * share + loss_(logits, targets[1].tensor) * (1 - share);
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

constexpr std::int64_t most_classes = 1024;  // limit of a leaf's confusion matrix

class Segmentation : public FieldTask {
  public:
    Segmentation(const TaskSettings& settings,
                 const Field& masks,
                 const TransformPipeline& pipeline)
        : FieldTask(TaskKind::segmentation, masks, settings.ignore_index),
          loss_(settings, field_),
          moved_(pipeline.output_shape({any_channels,
                                        static_cast<int>(field_.shape[0]),
                                        static_cast<int>(field_.shape[1])})) {
        check(outputs() <= most_classes,
              "E217",
              fmt::format("masks have {} classes", outputs()),
              fmt::format("segmentation supports at most {}", most_classes),
              "number the classes of the masks from 0 on");
    }

    std::vector<std::int64_t> output_shape() const override {
        return {outputs(), moved_.height, moved_.width};
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"masks", blank_numbers({count, moved_.height, moved_.width}, outputs())}};
    }

    TaskSums no_sums() const override {
        return {{0}, std::vector<std::int64_t>(static_cast<std::size_t>(outputs() * outputs()))};
    }

    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor found = counted_rows(only(outputs).argmax(1), samples);
        const at::Tensor masks = counted_rows(samples.targets[0].tensor, samples);
        return sums_of({loss(outputs, samples)},
                       {confusion_counts(masks, found, this->outputs(), ignored_)});
    }

    // Classes that neither are anywhere nor were found count in no mean.
    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const at::Tensor pairs = torch::tensor(sums.counts, torch::kInt64)
                                     .reshape({outputs(), outputs()})
                                     .to(torch::kFloat64);
        const at::Tensor both = pairs.diagonal(), either = pairs.sum(0) + pairs.sum(1) - both;
        const at::Tensor iou = (both / either).index({either.gt(0)});
        const double mean_iou = iou.numel() > 0 ? iou.mean().item<double>() : 0;
        const double accuracy = (both.sum() / pairs.sum()).item<double>();
        return {.metrics = {{"loss", sums.reals[0] / static_cast<double>(samples)},
                            {"iou", mean_iou},
                            {"accuracy", accuracy}},
                .text = fmt::format(
                    "mean IoU {}, accuracy of pixels {}", percent(mean_iou), percent(accuracy)),
                .confusion = confusion_csv(sums.counts, field_)};
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const at::Tensor& masks = samples.targets[0].tensor;
        const at::Tensor each = loss_(logits, masks);
        if (ignored_ < 0) return mean_of_each(each);
        const at::Tensor counted = masks.ne(ignored_).flatten(1).sum(1);
        return each.flatten(1).sum(1) / counted.clamp_min(1);
    }

  private:
    static constexpr int any_channels = 3;  // also ImageNet's

    ClassLoss loss_;
    ImageShape moved_;
};

}  // namespace

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

std::unique_ptr<Task> make_classification(const TaskSettings& settings, const Field& labels) {
    return std::make_unique<Classification>(settings, labels);
}

std::unique_ptr<Task> make_segmentation(const TaskSettings& settings,
                                        const Field& masks,
                                        const TransformPipeline& pipeline) {
    return std::make_unique<Segmentation>(settings, masks, pipeline);
}

}  // namespace lockstep
