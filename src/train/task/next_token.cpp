// SPDX-License-Identifier: Apache-2.0
#include "task/field_task.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// The model is given the first T tokens of a sample; targets are its last T.
class NextToken : public FieldTask {
  public:
    explicit NextToken(const Field& tokens) : FieldTask(TaskKind::next_token, tokens) {}

    std::vector<std::int64_t> output_shape() const override { return {length(), outputs()}; }

    NamedTensors targets(const LeafSource& source) const override {
        NamedTensors targets = FieldTask::targets(source);
        targets[0].tensor = targets[0].tensor.narrow(1, 1, length());
        return targets;
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"tokens",
                 torch::arange(count * length()).remainder(outputs()).reshape({count, length()})}};
    }

    TaskSums no_sums() const override { return {{0}, {0}}; }

    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor found = counted_rows(only(outputs).argmax(2), samples);
        const at::Tensor right = found.eq(counted_rows(samples.targets[0].tensor, samples));
        return sums_of({loss(outputs, samples)}, {right.sum()});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = static_cast<double>(samples);
        const double loss = sums.reals[0] / count, perplexity = std::exp(loss);
        const double accuracy =
            static_cast<double>(sums.counts[0]) / (count * static_cast<double>(length()));
        return {
            .metrics = {{"loss", loss}, {"perplexity", perplexity}, {"accuracy", accuracy}},
            .text = fmt::format("perplexity {:.3f}, accuracy {}", perplexity, percent(accuracy)),
            .confusion = {}};
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const at::Tensor each = at::cross_entropy_loss(
            logits.flatten(0, 1), samples.targets[0].tensor.flatten(), {}, at::Reduction::None);
        return each.reshape({-1, length()}).mean(1);
    }

  private:
    std::int64_t length() const { return field().shape[0] - 1; }
};

}  // namespace

std::unique_ptr<Task> make_next_token(const TaskSettings&, const Field& tokens) {
    return std::make_unique<NextToken>(tokens);
}

}  // namespace lockstep
