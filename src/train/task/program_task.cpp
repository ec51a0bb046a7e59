// SPDX-License-Identifier: Apache-2.0
// What a program of torch.export says of itself: nothing is compared with targets here, for they
// are among the model's inputs.
//
// Tested: train/task/other_tasks_test.cpp, e2e/own_models_test.cpp.
#include "task/field_task.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {
namespace {

class ProgramTask : public Task {
  public:
    explicit ProgramTask(std::vector<std::string> outputs) : metrics_(std::move(outputs)) {
        metrics_.erase(metrics_.begin());
    }

    std::int64_t outputs() const override { return 1; }
    std::vector<std::int64_t> output_shape() const override { return {}; }
    bool takes_metrics() const override { return true; }
    void check_test_data(const DatasetIndex&) const override {}
    NamedTensors targets(const LeafSource&) const override { return {}; }
    NamedTensors blank_targets(std::int64_t) const override { return {}; }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor& each = outputs.front().tensor;
        return (samples.weights.defined() ? each * samples.weights : each).sum();
    }

    TaskSums no_sums() const override { return {std::vector<double>(1 + metrics_.size()), {}}; }

    // Reals: the loss, then metrics in order.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const std::int64_t rows = outputs.front().tensor.size(0);
        std::vector<at::Tensor> reals{loss(outputs, samples)};
        for (std::size_t i = 1; i < outputs.size(); ++i) {
            const at::Tensor values = outputs[i].tensor.to(torch::kFloat64);
            const bool is_of_each = values.dim() > 0 && values.size(0) == rows;
            const at::Tensor each =
                is_of_each ? mean_of_each(values) : values.mean().expand({rows});
            reals.push_back(counted_rows(each, samples).sum());
        }
        return sums_of(reals, {});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = static_cast<double>(samples);
        Evaluation result{
            .metrics = {{"loss", sums.reals[0] / count}}, .text = {}, .confusion = {}};
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < metrics_.size(); ++i) {
            const double value = result.metrics[metrics_[i]] = sums.reals[1 + i] / count;
            texts.push_back(fmt::format("{} {:.4g}", metrics_[i], value));
        }
        result.text = metrics_.empty() ? fmt::format("loss {:.4g}", result.metrics["loss"])
                                       : fmt::format("{}", fmt::join(texts, ", "));
        return result;
    }

  private:
    std::vector<std::string> metrics_;
};

}  // namespace

std::unique_ptr<Task> make_program_task(std::vector<std::string> outputs) {
    return std::make_unique<ProgramTask>(std::move(outputs));
}

}  // namespace lockstep
