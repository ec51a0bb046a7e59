// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "task/field_task.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {
namespace {

class Regression : public FieldTask {
  public:
    Regression(const TaskSettings& settings, const Field& targets)
        : FieldTask(TaskKind::regression, targets), settings_(settings) {
        if (!settings.scales_targets) return;
        check(!targets.mean.empty(), [] {
            return Error("E248",
                         "--scale-targets would do nothing",
                         "the data set has no finite mean and deviation of 'targets'",
                         "give --normalise dataset, which finds them, or drop --scale-targets");
        });
        std::vector<double> divisors = targets.std;
        std::ranges::replace(divisors, 0.0, 1.0);  // all are equal
        deviation_ = torch::tensor(divisors, torch::kFloat64);
    }

    std::int64_t outputs() const override { return field().shape.empty() ? 1 : field().shape[0]; }

    NamedTensors targets(const LeafSource& source) const override {
        if (!deviation_.defined()) {
            NamedTensors targets = FieldTask::targets(source);
            targets[0].tensor = targets[0].tensor.reshape({-1, outputs()});
            return targets;
        }
        const at::Tensor stored = stored_targets(source).reshape({-1, outputs()});
        const at::Tensor scaled = (stored.to(torch::kFloat64) - middle()) / deviation_;
        return {{"targets", scaled.to(torch::kFloat32)}};
    }

    at::Tensor in_units(const at::Tensor& outputs) const override {
        if (!deviation_.defined()) return outputs;
        const at::Tensor exact = outputs.to(torch::kFloat64);
        return (exact * deviation_.to(outputs.device()) + middle().to(outputs.device()))
            .to(outputs.scalar_type());
    }

    std::string classes_text() const override {
        if (!deviation_.defined()) return "";
        return fmt::format("targets: scaled by mean {:.6g} and deviation {:.6g}",
                           fmt::join(field().mean, ", "),
                           fmt::join(field().std, ", "));
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        const at::Tensor numbers = torch::arange(count * outputs()).remainder(5);
        return {{"targets", (numbers - 2).to(torch::kFloat32).reshape({count, outputs()})}};
    }

    TaskSums no_sums() const override {
        return {std::vector<double>(static_cast<std::size_t>(2 + 3 * outputs())), {}};
    }

    // In the targets' units. Reals: loss, absolute errors; then, for each number, the squared
    // errors, the distances of targets from the training data's mean and their squares.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor found = counted_rows(only(outputs), samples).to(torch::kFloat64);
        const at::Tensor there =
            counted_rows(samples.targets[0].tensor, samples).to(torch::kFloat64);
        at::Tensor error = found - there, distance = there;
        if (deviation_.defined()) {
            const at::Tensor unit = deviation_.to(there.device());
            error = error * unit, distance = distance * unit;
        } else {
            distance = distance - middle().to(there.device());
        }
        return sums_of({loss(outputs, samples),
                        error.abs().sum(),
                        (error * error).sum(0),
                        distance.sum(0),
                        (distance * distance).sum(0)},
                       {});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = static_cast<double>(samples);
        const auto width = static_cast<std::size_t>(outputs());
        double squares = 0, r2 = 0;
        for (std::size_t k = 0; k < width; ++k) {
            const double error = sums.reals[2 + k], sum = sums.reals[2 + width + k];
            squares += error;
            r2 += determination(error, sums.reals[2 + 2 * width + k] - sum * sum / count);
        }
        const double numbers = count * static_cast<double>(width);
        r2 /= static_cast<double>(width);
        const double mae = sums.reals[1] / numbers, rmse = std::sqrt(squares / numbers);
        return {
            .metrics = {{"loss", sums.reals[0] / count}, {"r2", r2}, {"mae", mae}, {"rmse", rmse}},
            .text = fmt::format("R2 {:.4f}, MAE {:.4g}, RMSE {:.4g}", r2, mae, rmse),
            .confusion = {}};
    }

  protected:
    at::Tensor losses(const at::Tensor& outputs, const LeafSamples& samples) const override {
        return mean_of_each(distances(outputs, samples.targets[0].tensor));
    }

  private:
    // If all targets are equal: 1 for a perfect model, else 0, as in scikit-learn.
    static double determination(double error, double spread) {
        if (spread > 0) return 1 - error / spread;
        return error > 0 ? 0 : 1;
    }

    at::Tensor distances(const at::Tensor& outputs, const at::Tensor& targets) const {
        switch (settings_.loss) {
            case RegressionLoss::mae:
                return at::l1_loss(outputs, targets, at::Reduction::None);
            case RegressionLoss::huber:
                return at::huber_loss(outputs, targets, at::Reduction::None, settings_.huber_delta);
            default:
                return at::mse_loss(outputs, targets, at::Reduction::None);
        }
    }

    // f64 [K], or one number for all: squares of what is far from zero would lose digits.
    at::Tensor middle() const {
        const std::vector<double>& mean = field().mean;
        return mean.empty() ? torch::zeros({1}, torch::kFloat64)
                            : torch::tensor(mean, torch::kFloat64);
    }

    TaskSettings settings_;
    at::Tensor deviation_;  // f64 [K] or [1]; undefined: targets are learned as they are
};

}  // namespace

std::unique_ptr<Task> make_regression(const TaskSettings& settings, const Field& targets) {
    return std::make_unique<Regression>(settings, targets);
}

}  // namespace lockstep
