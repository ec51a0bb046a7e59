// SPDX-License-Identifier: Apache-2.0
// What tasks share whose targets are the rows of one field.
#pragma once

#include "task/task.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Which fields a task takes its targets from.
struct TargetRule {
    enum class Holds { classes, flags, numbers };
    std::string_view task, field;
    Holds holds = Holds::classes;
    std::size_t least_dimensions = 0, most_dimensions = 0;  ///< of one sample
    std::string_view form;                                  ///< for people: "whole numbers [n]"
};

/// Of a task that is settled.
const TargetRule& target_rule(TaskKind kind);

/// The field of `data` that the rule names. Errors: E207 if there is none, E217 if it has another
/// type or shape.
const Field& target_field(const DatasetIndex& data, const TargetRule& rule);

/// Targets are the rows of one field of `data`, the loss is a sum of losses of samples.
class FieldTask : public Task {
  public:
    FieldTask(TaskKind kind, Field field) : rule_(target_rule(kind)), field_(std::move(field)) {}

    std::int64_t outputs() const override { return field_.classes(); }
    std::string classes_text() const override;
    std::string class_warning() const override;
    void check_test_data(const DatasetIndex& test) const override;
    ClassNumbers class_numbers(const DatasetIndex& data) const override;
    NamedTensors targets(const LeafSource& source) const override;
    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override;

  protected:
    /// Of each sample, [n].
    virtual at::Tensor losses(const at::Tensor& outputs, const LeafSamples& samples) const = 0;

    const Field& field() const { return field_; }

  private:
    const TargetRule& rule_;
    Field field_;
};

/// [n, ...], whatever shape a sample has -> [n], the mean of each.
at::Tensor mean_of_each(const at::Tensor& values);

/// Without the rows of masked samples.
at::Tensor counted_rows(const at::Tensor& rows, const LeafSamples& samples);

/// All numbers of each list, one after the other.
SampleSums sums_of(const std::vector<at::Tensor>& reals, const std::vector<at::Tensor>& counts);

/// As JSON and people call a share: {0.123} "12.30 %".
std::string percent(double share);

}  // namespace lockstep
