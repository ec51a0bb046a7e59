// SPDX-License-Identifier: Apache-2.0
// What a model says of itself: nothing is compared with targets here, for they are among its
// inputs.
//
// Tested: train/task/other_tasks_test.cpp, e2e/own_models_test.cpp.
#include "lockstep/core/error.hpp"

#include "task/field_task.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {
namespace {

class ProgramTask : public Task {
  public:
    std::int64_t outputs() const override { return 1; }
    std::vector<std::int64_t> output_shape() const override { return {}; }
    bool takes_metrics() const override { return true; }
    void name_outputs(const NamedTensors& outputs) override {
        for (const NamedTensor& one : outputs) names_.push_back(one.name);
    }
    void check_test_data(const DatasetIndex&) const override {}
    NamedTensors targets(const LeafSource&) const override { return {}; }
    NamedTensors blank_targets(std::int64_t) const override { return {}; }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor& each = outputs.front().tensor;
        return (samples.weights.defined() ? each * samples.weights : each).sum();
    }

    TaskSums no_sums() const override { return {std::vector<double>(names_.size()), {}}; }

    // Reals: the loss, then metrics in order.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        check(std::ranges::equal(outputs, names_, {}, &NamedTensor::name), [&] {
            return Error("E217",
                         "the model returns other outputs than before",
                         fmt::format("it began with {}", fmt::join(names_, ", ")),
                         "return the same names in each call of its forward()");
        });
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
        for (std::size_t i = 1; i < names_.size(); ++i) {
            const double value = result.metrics[names_[i]] = sums.reals[i] / count;
            texts.push_back(fmt::format("{} {:.4g}", names_[i], value));
        }
        result.text = texts.empty() ? fmt::format("loss {:.4g}", result.metrics["loss"])
                                    : fmt::format("{}", fmt::join(texts, ", "));
        return result;
    }

  private:
    std::vector<std::string> names_;  ///< of outputs, the loss first
};

}  // namespace

std::unique_ptr<Task> make_program_task() {
    return std::make_unique<ProgramTask>();
}

}  // namespace lockstep
