// SPDX-License-Identifier: Apache-2.0
// The common part of tasks whose targets are the rows of one field.
#pragma once

#include "task/task.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The fields from which a task takes its targets.
struct TargetRule {
    enum class Holds { classes, flags, numbers };
    std::string_view task, field;
    Holds holds = Holds::classes;
    std::size_t least_dimensions = 0, most_dimensions = 0;  ///< dimensions of one sample
    std::string_view form;                                  ///< for people: "whole numbers [n]"
};

/// Returns the rule of a known task.
const TargetRule& target_rule(TaskKind kind);

/// Returns the field of `data` that the rule names. Errors: E207 if there is none, E217 if it has
/// another type or shape.
const Field& target_field(const DatasetIndex& data, const TargetRule& rule);

/// A task with the rows of one field of `data` as targets and a sum of samples' losses as loss.
class FieldTask : public Task {
  public:
    /// A highest class that is `ignored` has no output.
    FieldTask(TaskKind kind, Field field, std::int64_t ignored = -1);

    std::int64_t outputs() const override { return field_.classes(); }
    std::string classes_text() const override;
    std::string class_warning() const override;
    void check_test_data(const DatasetIndex& test) const override;
    ClassNumbers class_numbers(const DatasetIndex& data) const override;
    NamedTensors targets(const LeafSource& source) const override;
    at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const override;

  protected:
    /// Returns the loss of each sample, [n].
    virtual at::Tensor losses(const at::Tensor& outputs, const LeafSamples& samples) const = 0;

    /// Returns a leaf's targets as they are stored, in the batch's memory.
    at::Tensor stored_targets(const LeafSource& source) const;

    const Field& field() const { return field_; }
    std::int64_t ignored() const { return ignored_; }

  private:
    const TargetRule& rule_;
    std::int64_t ignored_;
    Field field_;
};

/// Reduces [n, ...] to [n], the mean of each sample.
at::Tensor mean_of_each(const at::Tensor& values);

/// Returns the rows without those of masked samples.
at::Tensor counted_rows(const at::Tensor& rows, const LeafSamples& samples);

/// Returns the sums of each list.
SampleSums sums_of(const std::vector<at::Tensor>& reals, const std::vector<at::Tensor>& counts);

/// Returns a share in the form of JSON and of people: {0.123} "12.30 %".
std::string percent(double share);

}  // namespace lockstep
