// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"

#include "task/field_task.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// A label counts as present if its logit is positive: its probability is above one half.
class MultiLabel : public FieldTask {
    static constexpr double unknown = -1;

  public:
    explicit MultiLabel(const Field& labels) : FieldTask(TaskKind::multi_label, labels) {}

    std::int64_t outputs() const override { return field().shape[0]; }

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
        const at::Tensor numbers = torch::arange(count * outputs()).remainder(3);
        return {{"labels", numbers.eq(0).to(torch::kFloat32).reshape({count, outputs()})}};
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
                    "F1 {}, accuracy of labels {}{}", percent(f1), percent(accuracy), left_out),
                .confusion = {}};
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

}  // namespace

std::unique_ptr<Task> make_multi_label(const TaskSettings&, const Field& labels) {
    return std::make_unique<MultiLabel>(labels);
}

}  // namespace lockstep
