// SPDX-License-Identifier: Apache-2.0
// Tasks besides those of one class for each sample or pixel.
//
// Tested: train/task/tasks_test.cpp, e2e/own_models_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"

#include "task/task.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// A label counts as present if its logit is positive: its probability is above one half.
class MultiLabel : public FieldTask {
    static constexpr double unknown = -1;

  public:
    explicit MultiLabel(const Field& labels) : FieldTask(TaskKind::multi_label, labels) {}

    std::int64_t outputs() const override { return field_.shape[0]; }

    NamedTensors targets(const LeafSource& source) const override {
        NamedTensors targets = FieldTask::targets(source);
        const at::Tensor& labels = targets[0].tensor;
        const at::Tensor are_flags =
            labels.ge(0).logical_and(labels.le(1)).logical_or(labels.eq(unknown));
        check(are_flags.all().item<bool>(), [&] {
            const at::Tensor bad = are_flags.logical_not().nonzero()[0];
            const auto row = static_cast<std::size_t>(bad[0].item<std::int64_t>());
            return bad_flag(source, row, bad[1].item<std::int64_t>(), labels);
        });
        return targets;
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"labels", blank_numbers({count, outputs()}, 3).eq(0).to(torch::kFloat32)}};
    }

    TaskSums no_sums() const override { return {{0}, {0, 0, 0, 0, 0}}; }

    // Counts of known labels: found and there, found, there, right either way, all.
    SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const override {
        const at::Tensor labels = counted_rows(samples.targets[0].tensor, samples);
        const at::Tensor known = labels.ne(unknown), there = labels.gt(0.5);
        const at::Tensor found = counted_rows(only(outputs), samples).gt(0).logical_and(known);
        return sums_of({loss(outputs, samples)},
                       {found.logical_and(there).sum(),
                        found.sum(),
                        there.sum(),
                        found.eq(there).logical_and(known).sum(),
                        known.sum()});
    }

    Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const override {
        const auto count = [&](std::size_t i) { return static_cast<double>(sums.counts[i]); };
        const double all = static_cast<double>(samples) * static_cast<double>(outputs());
        const double either = count(1) + count(2), known = count(4);
        const double f1 = either > 0 ? 2 * count(0) / either : 1;
        const double accuracy = known > 0 ? count(3) / known : 0;
        const std::string left_out =
            known < all ? fmt::format(" ({} unknown, left out)", percent(1 - known / all)) : "";
        return {.metrics = {{"loss", sums.reals[0] / static_cast<double>(samples)},
                            {"f1", f1},
                            {"accuracy", accuracy}},
                .text = fmt::format(
                    "F1 {}, accuracy of labels {}{}", percent(f1), percent(accuracy), left_out)};
    }

  private:
    // Returns the error for the source's row number `row`.
    static Error bad_flag(const LeafSource& source,
                          std::size_t row,
                          std::int64_t label,
                          const at::Tensor& labels) {
        const std::size_t place = source.index.field_position("labels");
        const Field& field = source.index.fields()[place];
        const std::uint64_t sample = source.batch.sample_ids[source.leaf.first_row + row];
        return {
            "E210",
            fmt::format("label {} of sample {} is {}: {}",
                        label,
                        grouped(sample),
                        labels[static_cast<std::int64_t>(row)][label].item<double>(),
                        row_text(source.index, field, sample)),
            fmt::format("'labels' [n, {}] say whether a sample has each label: 0 no, 1 yes, -1 "
                        "unknown",
                        field.shape[0]),
            fmt::format("if it is unknown, store -1; to predict these numbers, in a new run: {}",
                        way_to_rename(source.index, place, "targets"))};
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const at::Tensor& labels = samples.targets[0].tensor;
        const at::Tensor known = labels.ne(unknown).to(logits.scalar_type());
        const at::Tensor each = at::binary_cross_entropy_with_logits(
            logits, labels.clamp_min(0), {}, {}, at::Reduction::None);
        return (each * known).sum(1) / known.sum(1).clamp_min(1);
    }
};

// The cross entropy of 16-bit logits [rows, classes], computed in fp32, some rows at a time.
// Backward computes their log-probabilities once more. A whole fp32 copy, its log-probabilities and
// its gradient would take 3.3 GB each for 16,384 tokens of a vocabulary of 50,257. The bits are the
// same (tested on CPUs), because LibTorch's operators compute each row by itself.
//
// Only for tokens: other tasks have fewer classes, weights of classes and smoothed labels.
class ReducedCrossEntropy : public torch::autograd::Function<ReducedCrossEntropy> {
  public:
    static at::Tensor forward(torch::autograd::AutogradContext* context,
                              const at::Tensor& logits,
                              const at::Tensor& classes) {
        context->save_for_backward({logits, classes});
        at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
        for_each_piece(logits, [&](const auto& part) {
            part(losses).copy_(at::cross_entropy_loss(
                part(logits).to(at::kFloat), part(classes), {}, at::Reduction::None));
        });
        return losses;
    }

    // The gradient is multiplied in fp32 before it is rounded: fp16's loss scale is part of it.
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context,
        const torch::autograd::variable_list& gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &logits = saved[0], &classes = saved[1], &gradient = gradients[0];
        const at::Tensor no_weight = at::zeros({}, gradient.options());
        at::Tensor result = at::empty_like(logits);
        for_each_piece(logits, [&](const auto& part) {
            const at::Tensor log_shares = at::log_softmax(part(logits).to(at::kFloat), 1);
            const at::Tensor own = at::nll_loss_backward(part(gradient),
                                                         log_shares,
                                                         part(classes),
                                                         {},
                                                         at::Reduction::None,
                                                         ignored_by_default,
                                                         no_weight);
            part(result).copy_(at::_log_softmax_backward_data(own, log_shares, 1, at::kFloat));
        });
        return {result, at::Tensor()};
    }

  private:
    static constexpr std::int64_t ignored_by_default = -100;  // as at::cross_entropy_loss() does

    // On CPUs a piece fits into a core's cache. On GPUs it is large enough to be worth its
    // launches. Kernels there cut a row into vectors by its address. So pieces begin at multiples
    // of 16 rows, as far from whole vectors as they are in a whole copy.
    static std::int64_t rows_of_piece(const at::Tensor& logits) {
        const std::int64_t bytes = logits.is_cpu() ? 2 << 20 : 64 << 20;
        const std::int64_t step = logits.is_cpu() ? 1 : 16;
        const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * logits.size(1);
        return std::max<std::int64_t>(bytes / (row_bytes * step), 1) * step;
    }

    // Calls `compute` with a function that returns the piece's part of a tensor.
    template <class Compute>
    static void for_each_piece(const at::Tensor& logits, Compute&& compute) {
        const std::int64_t all = logits.size(0), most = rows_of_piece(logits);
        for (std::int64_t first = 0; first < all; first += most)
            compute([&](const at::Tensor& rows) {
                return rows.narrow(0, first, std::min(most, all - first));
            });
    }
};

at::Tensor token_losses(const at::Tensor& logits, const at::Tensor& classes) {
    const bool is_reduced = at::isReducedFloatingType(logits.scalar_type());
    // Several threads of a CPU would wait for each other after each operator of each piece.
    if (is_reduced && (!logits.is_cpu() || at::get_num_threads() == 1))
        return ReducedCrossEntropy::apply(logits, classes);
    return at::cross_entropy_loss(
        is_reduced ? logits.to(at::kFloat) : logits, classes, {}, at::Reduction::None);
}

// The model is given the first T tokens of a sample; targets are its last T.
class NextToken : public FieldTask {
  public:
    explicit NextToken(const Field& tokens) : FieldTask(TaskKind::next_token, tokens) {}

    std::vector<std::int64_t> output_shape() const override { return {length(), outputs()}; }
    bool takes_16_bits() const override { return true; }

    NamedTensors targets(const LeafSource& source) const override {
        NamedTensors targets = FieldTask::targets(source);
        targets[0].tensor = targets[0].tensor.narrow(1, 1, length());
        return targets;
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"tokens", blank_numbers({count, length()}, outputs())}};
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
            .text = fmt::format("perplexity {:.3f}, accuracy {}", perplexity, percent(accuracy))};
    }

  protected:
    at::Tensor losses(const at::Tensor& logits, const LeafSamples& samples) const override {
        const at::Tensor each =
            token_losses(logits.flatten(0, 1), samples.targets[0].tensor.flatten());
        return each.reshape({-1, length()}).mean(1);
    }

  private:
    std::int64_t length() const { return field_.shape[0] - 1; }
};

class Regression : public FieldTask {
  public:
    Regression(const TaskSettings& settings, const Field& targets)
        : FieldTask(TaskKind::regression, targets),
          settings_(settings),
          middle_(targets.mean.empty() ? torch::zeros({1}, torch::kFloat64)
                                       : torch::tensor(targets.mean, torch::kFloat64)) {
        if (!settings.scales_targets) return;
        check(!targets.mean.empty(),
              "E248",
              "--scale-targets would do nothing",
              "the data set has no finite mean and deviation of 'targets'",
              "give --normalise dataset, which finds them, or drop --scale-targets");
        std::vector<double> divisors = targets.std;
        std::ranges::replace(divisors, 0.0, 1.0);  // all are equal
        deviation_ = torch::tensor(divisors, torch::kFloat64);
    }

    std::int64_t outputs() const override { return field_.shape.empty() ? 1 : field_.shape[0]; }

    NamedTensors targets(const LeafSource& source) const override {
        if (deviation_.defined()) {
            const at::Tensor stored = stored_targets(source).reshape({-1, outputs()});
            const at::Tensor scaled = (stored.to(torch::kFloat64) - middle_) / deviation_;
            return {{"targets", scaled.to(torch::kFloat32)}};
        }
        NamedTensors targets = FieldTask::targets(source);
        targets[0].tensor = targets[0].tensor.reshape({-1, outputs()});
        return targets;
    }

    at::Tensor in_units(const at::Tensor& outputs) const override {
        if (!deviation_.defined()) return outputs;
        const at::Tensor exact = outputs.to(torch::kFloat64);
        return (exact * deviation_.to(outputs.device()) + middle_.to(outputs.device()))
            .to(outputs.scalar_type());
    }

    std::string classes_text() const override {
        if (!deviation_.defined()) return "";
        return fmt::format("targets: scaled by mean {:.6g} and deviation {:.6g}",
                           fmt::join(field_.mean, ", "),
                           fmt::join(field_.std, ", "));
    }

    std::string class_warning() const override {
        std::vector<std::string> constant;
        for (std::size_t k = 0; k < field_.std.size(); ++k)
            if (field_.std[k] == 0)
                constant.push_back(fmt::format("{} is always {:.6g}", name_of(k), field_.mean[k]));
        return constant.empty() ? ""
                                : fmt::format("there is nothing to learn of some targets: {}",
                                              fmt::join(constant, ", "));
    }

    NamedTensors blank_targets(std::int64_t count) const override {
        return {{"targets", (blank_numbers({count, outputs()}, 5) - 2).to(torch::kFloat32)}};
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
            distance = distance - middle_.to(there.device());
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
        return k < field_.columns.size() ? printable(field_.columns[k])
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

    TaskSettings settings_;
    at::Tensor middle_;     // f64 [K] or [1]: squares of what is far from zero would lose digits
    at::Tensor deviation_;  // f64 [K] or [1]; undefined: targets are learned as they are
};

// Compares nothing with targets, which are among the inputs of the model.
class ProgramTask : public Task {
  public:
    std::int64_t outputs() const override { return 1; }
    std::vector<std::int64_t> output_shape() const override { return {}; }
    bool takes_metrics() const override { return true; }
    void name_outputs(const NamedTensors& outputs) override { names_ = names_of(outputs); }
    void check_test_data(const DatasetIndex&) const override {}
    NamedTensors targets(const LeafSource&) const override { return {}; }
    NamedTensors blank_targets(std::int64_t) const override { return {}; }

    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override {
        return sum_of_each(outputs.front().tensor, samples);
    }
    std::string classes_text() const override {
        return fmt::format("output '{}' is minimised", printable(names_.at(0)));
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
        Evaluation result{.metrics = {{"loss", sums.reals[0] / count}}, .text = {}};
        for (std::size_t i = 1; i < names_.size(); ++i) {
            const double value = result.metrics[names_[i]] = sums.reals[i] / count;
            result.text += fmt::format("{}{} {:.4g}", i > 1 ? ", " : "", names_[i], value);
        }
        if (result.text.empty()) result.text = fmt::format("loss {:.4g}", sums.reals[0] / count);
        return result;
    }

  private:
    std::vector<std::string> names_;  ///< of outputs, the loss first
};

}  // namespace

std::unique_ptr<Task> make_multi_label(const TaskSettings&, const Field& labels) {
    return std::make_unique<MultiLabel>(labels);
}

std::unique_ptr<Task> make_next_token(const TaskSettings&, const Field& tokens) {
    return std::make_unique<NextToken>(tokens);
}

std::unique_ptr<Task> make_regression(const TaskSettings& settings, const Field& targets) {
    return std::make_unique<Regression>(settings, targets);
}

std::unique_ptr<Task> make_program_task() {
    return std::make_unique<ProgramTask>();
}

}  // namespace lockstep
