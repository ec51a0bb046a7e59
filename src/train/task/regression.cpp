// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "task/task.hpp"

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

    std::string class_warning() const override {
        std::vector<std::string> constant;
        for (std::size_t k = 0; k < field().std.size(); ++k)
            if (field().std[k] == 0)
                constant.push_back(fmt::format("{} is always {:.6g}", name_of(k), field().mean[k]));
        return constant.empty() ? ""
                                : fmt::format("there is nothing to learn of some targets: {}",
                                              fmt::join(constant, ", "));
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        const at::Tensor numbers = torch::arange(count * outputs()).remainder(5);
        return {{"targets", (numbers - 2).to(torch::kFloat32).reshape({count, outputs()})}};
    }

    TaskSums no_sums() const override {
        return {std::vector<double>(static_cast<std::size_t>(1 + 4 * outputs())), {}};
    }

    // In the targets' units. Reals: loss; then, for each number, the absolute errors, the squared
    // ones, the distances of targets from the training data's mean and their squares.
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
                        error.abs().sum(0),
                        (error * error).sum(0),
                        distance.sum(0),
                        (distance * distance).sum(0)},
                       {});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = static_cast<double>(samples);
        const auto width = static_cast<std::size_t>(outputs());
        const auto wide = static_cast<double>(width);
        double absolute = 0, squares = 0, r2 = 0;
        std::string table = "target                    R2        MAE       RMSE\n";
        for (std::size_t k = 0; k < width; ++k) {
            const auto real = [&](std::size_t which) { return sums.reals[1 + which * width + k]; };
            const double spread = real(3) - real(2) * real(2) / count;
            const double own_r2 = determination(real(1), spread);
            table += fmt::format("{:<18} {:>9.4f} {:>10.4g} {:>10.4g}\n",
                                 name_of(k),
                                 own_r2,
                                 real(0) / count,
                                 std::sqrt(real(1) / count));
            absolute += real(0);
            squares += real(1);
            r2 += own_r2 / wide;
        }
        const double mae = absolute / (count * wide), rmse = std::sqrt(squares / (count * wide));
        return {
            .metrics = {{"loss", sums.reals[0] / count}, {"r2", r2}, {"mae", mae}, {"rmse", rmse}},
            .text = fmt::format("R2 {:.4f}, MAE {:.4g}, RMSE {:.4g}", r2, mae, rmse),
            .by_class = width > 1 ? table : ""};
    }

  protected:
    at::Tensor losses(const at::Tensor& outputs, const LeafSamples& samples) const override {
        return mean_of_each(distances(outputs, samples.targets[0].tensor));
    }

  private:
    // Of target `k`, from 1 where they have no names.
    std::string name_of(std::size_t k) const {
        return k < field().columns.size() ? printable(field().columns[k])
                                          : fmt::format("target {}", k + 1);
    }

    // If all targets are equal: 1 for a perfect model, else 0, as in scikit-learn.
    static double determination(double error, double spread) {
        if (spread > 0) return 1 - error / spread;
        return error > 0 ? 0 : 1;
    }

    at::Tensor distances(const at::Tensor& outputs, const at::Tensor& targets) const {
        if (settings_.loss == RegressionLoss::mae)
            return at::l1_loss(outputs, targets, at::Reduction::None);
        if (settings_.loss == RegressionLoss::huber)
            return at::huber_loss(outputs, targets, at::Reduction::None, settings_.huber_delta);
        return at::mse_loss(outputs, targets, at::Reduction::None);
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
