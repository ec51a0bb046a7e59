// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "task/classification.hpp"
#include "task/field_task.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

struct Overlap {
    double mean_iou = 0, accuracy = 0;
};

// Classes that neither are anywhere nor were found count in no mean.
Overlap overlap_of(const std::vector<std::int64_t>& confusion, std::int64_t classes) {
    const at::Tensor pairs =
        torch::tensor(confusion, torch::kInt64).reshape({classes, classes}).to(torch::kFloat64);
    const at::Tensor both = pairs.diagonal(), either = pairs.sum(0) + pairs.sum(1) - both;
    const at::Tensor iou = (both / either).index({either.gt(0)});
    return {iou.numel() > 0 ? iou.mean().item<double>() : 0,
            (both.sum() / pairs.sum()).item<double>()};
}

constexpr std::int64_t most_classes = 1024;  // limit of a leaf's confusion matrix

class Segmentation : public FieldTask {
  public:
    Segmentation(const TaskSettings& settings,
                 const Field& masks,
                 const TransformPipeline& pipeline)
        : FieldTask(TaskKind::segmentation, masks, settings.ignore_index),
          loss_(settings, field()),
          moved_(pipeline.output_shape({any_channels,
                                        static_cast<int>(field().shape[0]),
                                        static_cast<int>(field().shape[1])})) {
        check(outputs() <= most_classes, [&] {
            return Error("E217",
                         fmt::format("masks have {} classes", outputs()),
                         fmt::format("segmentation supports at most {}", most_classes),
                         "number the classes of the masks from 0 on");
        });
    }

    std::vector<std::int64_t> output_shape() const override {
        return {outputs(), moved_.height, moved_.width};
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        const std::int64_t height = moved_.height, width = moved_.width;
        return {{"masks",
                 torch::arange(count * height * width)
                     .remainder(outputs())
                     .reshape({count, height, width})}};
    }

    TaskSums no_sums() const override {
        return {{0}, std::vector<std::int64_t>(static_cast<std::size_t>(outputs() * outputs()))};
    }

    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor found = counted_rows(only(outputs).argmax(1), samples);
        const at::Tensor masks = counted_rows(samples.targets[0].tensor, samples);
        return sums_of({loss(outputs, samples)},
                       {confusion_counts(masks, found, this->outputs(), ignored())});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto [mean_iou, accuracy] = overlap_of(sums.counts, outputs());
        return {.metrics = {{"loss", sums.reals[0] / static_cast<double>(samples)},
                            {"iou", mean_iou},
                            {"accuracy", accuracy}},
                .text = fmt::format(
                    "mean IoU {}, accuracy of pixels {}", percent(mean_iou), percent(accuracy)),
                .confusion = confusion_csv(sums.counts, field())};
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const at::Tensor& masks = samples.targets[0].tensor;
        const at::Tensor each = loss_.of_each(logits, masks);
        if (ignored() < 0) return mean_of_each(each);
        const at::Tensor counted = masks.ne(ignored()).flatten(1).sum(1);
        return each.flatten(1).sum(1) / counted.clamp_min(1);
    }

  private:
    static constexpr int any_channels = 3;  // also ImageNet's

    ClassLoss loss_;
    ImageShape moved_;
};

}  // namespace

std::unique_ptr<Task> make_segmentation(const TaskSettings& settings,
                                        const Field& masks,
                                        const TransformPipeline& pipeline) {
    return std::make_unique<Segmentation>(settings, masks, pipeline);
}

}  // namespace lockstep
