// SPDX-License-Identifier: Apache-2.0
// The meaning of a model's outputs: a loss and metrics that are sums over samples, so that they add
// over leaves and ranks, and one final formula.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// One leaf's samples. All tensors have them as their first dimension.
struct LeafSamples {
    NamedTensors inputs;   ///< inputs of the model
    NamedTensors targets;  ///< values to compare its outputs with
    at::Tensor weights{};  ///< f32 [n], 0 for masked samples; undefined if none is masked

    /// Returns samples [first, first + count), sharing memory.
    LeafSamples part(std::int64_t first, std::int64_t count) const;

    /// Returns them with targets and weights on `device`, for the loss of outputs there.
    LeafSamples with_targets_on(at::Device device) const;
};

/// By class of a data set, the class of that name in the training data; empty: they are the same.
using ClassNumbers = std::vector<std::int64_t>;

/// The sources of a leaf's targets.
struct LeafSource {
    const Batch& batch;
    const LeafRows& leaf;
    const DatasetIndex& index;         ///< index of the batch's fields
    const ClassNumbers& classes;       ///< classes of `index`
    const std::vector<MixRow>& mixed;  ///< results of FieldInput::mix()
};

/// The sums of an evaluation. Reals are added in the order of leaves; counts are exact in any
/// order.
struct TaskSums {
    std::vector<double> reals;
    std::vector<std::int64_t> counts;
};

/// The same on the device of a model's outputs: f64 and i64, both [n] or [rows, n].
struct SampleSums {
    at::Tensor reals, counts;

    TaskSums on_host() const;  ///< waits for the device
};

/// The result of an evaluation.
struct Evaluation {
    std::map<std::string, double> metrics;  ///< "loss", the mean over samples, and the task's own
    std::string text;                       ///< metrics for people
    std::string confusion{};                ///< CSV, see confusion_csv(); "": none
    std::string by_class{};  ///< a table for people of each class or target; "": none
};

/// What a model learns. Immutable but for name_outputs(): any thread may call.
class Task {
  public:
    virtual ~Task() = default;

    /// Returns the number of classes, or of numbers to predict.
    virtual std::int64_t outputs() const = 0;

    /// Returns the shape of a model's output for one sample.
    virtual std::vector<std::int64_t> output_shape() const { return {outputs()}; }

    /// Whether a model may give more than what is learned from: metrics, after that.
    virtual bool takes_metrics() const { return false; }

    /// Takes the names of the model's outputs if it takes_metrics(), before any evaluation.
    virtual void name_outputs(const NamedTensors&) {}

    /// Whether loss() takes outputs of 16 bits, too.
    virtual bool takes_16_bits() const { return false; }

    /// Returns a model's outputs in the units of the data.
    virtual at::Tensor in_units(const at::Tensor& outputs) const { return outputs; }

    /// For the log: how many classes, and what they are called, or what a program minimises; "" for
    /// others.
    virtual std::string classes_text() const { return ""; }

    /// Checks that there is something to learn. Returns for the user the classes that do not occur,
    /// or targets that are constant; or "". Errors: E210, E217.
    virtual std::string class_warning() const { return ""; }

    /// Checks that a model of this task can be evaluated on `test`. Errors: E217.
    virtual void check_test_data(const DatasetIndex& test) const = 0;

    /// Returns the training's numbers for the classes of `data`; -1: none has the name, which
    /// check_test_data() refuses if samples have it.
    virtual ClassNumbers class_numbers(const DatasetIndex&) const { return {}; }

    virtual NamedTensors targets(const LeafSource& source) const = 0;

    /// Returns generated targets of `count` samples, the same everywhere.
    virtual NamedTensors blank_targets(std::int64_t count) const = 0;

    /// Returns the sum over samples, without masked ones. Scalar.
    virtual at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// Returns zeros for as many sums as sums() returns.
    virtual TaskSums no_sums() const = 0;

    /// Returns the sums of these samples, which are on one device with `outputs`; the first real is
    /// their loss.
    virtual SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// Applies the final formula: `sums` are those of `samples` samples.
    virtual Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const = 0;
};

/// Returns the task of `settings`, or the one that the fields of `data` imply: "labels" [n]
/// classification, "labels" [n, K] multi_label, "masks" segmentation, "targets" regression,
/// "tokens" next_token. Errors: E207 if there is no field for it, E217 if fields imply several.
TaskKind choose_task(const TaskSettings& settings, const DatasetIndex& data);

/// Returns its name for --task. Not of TaskKind::automatic.
std::string_view task_name(TaskKind kind);

/// Makes the task for `data`, or that of a model that computes the loss itself. Errors: those of
/// choose_task(); E217 if the field has another type or shape, or if an input is what is learned;
/// E103 for invalid weights, E248 if targets cannot follow `pipeline`; those of the model's file.
std::unique_ptr<Task> make_task(const TrainSettings& settings,
                                const DatasetIndex& data,
                                const TransformPipeline& pipeline);

/// The first output is the loss of each sample; others, a number for each sample or for all of a
/// leaf, are metrics.
std::unique_ptr<Task> make_program_task();

/// Which class a sample is of, `labels` whole numbers [n]: cross entropy of logits [n, classes];
/// accuracy, top-5 where there are more than ten classes. A mixed sample counts
/// lambda * CE(label) + (1 - lambda) * CE(partner's label).
std::unique_ptr<Task> make_classification(const TaskSettings& settings, const Field& labels);

/// Makes the task of K labels per sample; `labels` are 0 or 1 [n, K]. Loss: the mean over labels of
/// the binary cross entropy of logits [n, K]. Metrics: F1 over all labels and samples, accuracy of
/// labels.
std::unique_ptr<Task> make_multi_label(const TaskSettings& settings, const Field& labels);

/// Makes the task of numbers; `targets` are [n] or [n, K]. Loss: their mean squared, absolute or
/// Huber's distance ("Robust Estimation of a Location Parameter", 1964) from outputs [n, K].
/// Metrics: R2, the mean over the K numbers as in scikit-learn's r2_score, MAE and RMSE.
std::unique_ptr<Task> make_regression(const TaskSettings& settings, const Field& targets);

/// Makes the task of one class per pixel; `masks` are whole numbers [n, H, W]. Loss: the mean over
/// pixels of the cross entropy of logits [n, classes, H, W]. Metrics: intersection over union, the
/// mean over existing classes, and accuracy of pixels. H and W are those after `pipeline`.
std::unique_ptr<Task> make_segmentation(const TaskSettings& settings,
                                        const Field& masks,
                                        const TransformPipeline& pipeline = {});

/// Makes the task of the next token after each of T; `tokens` are whole numbers [n, T + 1]. Loss:
/// the mean over positions of the cross entropy of logits [n, T, vocabulary]. Metrics: perplexity,
/// accuracy.
std::unique_ptr<Task> make_next_token(const TaskSettings& settings, const Field& tokens);

struct TargetRule;

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

    const TargetRule& rule_;
    const std::int64_t ignored_;  ///< class that is not learned; -1: none
    const Field field_;           ///< of the training data
};

/// Returns E217 for test data at `place`.
Error other_data(const std::string& place,
                 const std::string& why,
                 const std::string& fix = "pack both from one source");

/// Returns generated whole numbers from 0 to `below` - 1.
at::Tensor blank_numbers(at::IntArrayRef extents, std::int64_t below);

/// Returns the sum of a number of each sample, [n], without masked ones.
at::Tensor sum_of_each(const at::Tensor& each, const LeafSamples& samples);

/// Reduces [n, ...] to [n], the mean of each sample.
at::Tensor mean_of_each(const at::Tensor& values);

/// Returns the rows without those of masked samples.
at::Tensor counted_rows(const at::Tensor& rows, const LeafSamples& samples);

/// Returns the sums of each list.
SampleSums sums_of(const std::vector<at::Tensor>& reals, const std::vector<at::Tensor>& counts);

/// Returns i64 [number * number]: how often the row's class was predicted as the column's, without
/// those of the class `ignored`.
at::Tensor confusion_counts(const at::Tensor& classes,
                            const at::Tensor& found,
                            std::int64_t number,
                            std::int64_t ignored = -1);

/// Returns a share in the form of JSON and of people: {0.123} "12.30 %".
std::string percent(double share);

}  // namespace lockstep
