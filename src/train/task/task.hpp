// SPDX-License-Identifier: Apache-2.0
// What a model's outputs mean: a loss and metrics that are sums over samples, so that they add over
// leaves and ranks, and one formula at the end.
#pragma once

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
    NamedTensors inputs;   ///< what the model is given
    NamedTensors targets;  ///< what its outputs are compared with
    at::Tensor weights;    ///< f32 [n], 0 for masked samples; undefined where none is

    /// Samples [first, first + count), sharing memory.
    LeafSamples part(std::int64_t first, std::int64_t count) const;

    /// Targets and weights there, as the loss of outputs there needs them.
    LeafSamples with_targets_on(at::Device device) const;
};

/// By class of a data set, the class of that name in the training data; empty: they are the same.
using ClassNumbers = std::vector<std::int64_t>;

/// What a leaf's targets are made of.
struct LeafSource {
    const Batch& batch;
    const LeafRows& leaf;
    const DatasetIndex& index;         ///< of the batch's fields
    const ClassNumbers& classes;       ///< of `index`
    TransformKey key;                  ///< by which inputs were transformed
    const std::vector<MixRow>& mixed;  ///< what FieldInput::mix() did to them
};

/// What evaluation adds up. Reals are added in the order of leaves; counts are exact in any.
struct TaskSums {
    std::vector<double> reals;
    std::vector<std::int64_t> counts;
};

/// The same where a model's outputs are: f64 and i64, both [n] or [rows, n].
struct SampleSums {
    at::Tensor reals, counts;

    TaskSums on_host() const;  ///< waits for the device
};

/// What a run says about itself after an evaluation.
struct Evaluation {
    std::map<std::string, double> metrics;  ///< "loss", the mean over samples, and the task's own
    std::string text;                       ///< of metrics, for people
    std::string confusion;                  ///< CSV, see confusion_csv(); "": none
};

/// Immutable: any thread may call.
class Task {
  public:
    virtual ~Task() = default;

    /// Classes to choose from, or numbers to predict.
    virtual std::int64_t outputs() const = 0;

    /// Of what a model has to give for one sample.
    virtual std::vector<std::int64_t> output_shape() const { return {outputs()}; }

    /// Whether a model may give more than what is learned from: metrics, after that.
    virtual bool takes_metrics() const { return false; }

    /// For the log: how many classes, and what they are called; "" where there are none.
    virtual std::string classes_text() const { return ""; }

    /// Whether there is something to learn; for the user, which classes do not occur, or "".
    /// Errors: E210, E217.
    virtual std::string class_warning() const { return ""; }

    /// Whether a model that learns this can be evaluated on `test`. Errors: E217.
    virtual void check_test_data(const DatasetIndex& test) const = 0;

    /// How the classes of `data` are numbered in training; -1: none has the name, which
    /// check_test_data() does not let pass where samples have it.
    virtual ClassNumbers class_numbers(const DatasetIndex& data) const;

    virtual NamedTensors targets(const LeafSource& source) const = 0;

    /// Targets of `count` samples that are made up, the same everywhere.
    virtual NamedTensors blank_targets(std::int64_t count) const = 0;

    /// Summed over samples, masked ones counting nothing. Scalar.
    virtual at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// As many of both as sums() gives.
    virtual TaskSums no_sums() const = 0;

    /// Of these samples, which are on one device with `outputs`; the first real is their loss.
    virtual SampleSums sums(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// The final formula: `sums` are those of `samples` samples.
    virtual Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const = 0;
};

/// The one that `settings` ask for, or that the fields of `data` say: "labels" [n] classification,
/// "labels" [n, K] multi_label, "masks" segmentation, "targets" regression, "tokens" next_token.
/// Errors: E207 if there is no field for it, E217 if fields say several.
TaskKind choose_task(const TaskSettings& settings, const DatasetIndex& data);

/// What `data` are for, `settings.kind` being settled. Errors: E207, E217 if the field has another
/// type or shape; E103 for weights that are none, E248 where targets cannot follow `pipeline`.
std::unique_ptr<Task> make_task(const TaskSettings& settings,
                                const DatasetIndex& data,
                                const TransformPipeline& pipeline);

/// The same for the run of `settings`, whose model may compute the loss itself. Errors: as above,
/// E217 if an input of other tasks is what they learn; those of the model's file.
std::unique_ptr<Task> make_task(const TrainSettings& settings,
                                const DatasetIndex& data,
                                const TransformPipeline& pipeline);

/// The first of `outputs` is the loss of each sample; others, a number for each sample or for all
/// of a leaf, are metrics.
std::unique_ptr<Task> make_program_task(std::vector<std::string> outputs);

/// Which class a sample is of, `labels` whole numbers [n]: cross entropy of logits [n, classes];
/// accuracy, top-5 where there are more than ten classes. A mixed sample counts
/// lambda * CE(label) + (1 - lambda) * CE(partner's label).
std::unique_ptr<Task> make_classification(const TaskSettings& settings, const Field& labels);

/// Which of K labels a sample has, `labels` 0 or 1 [n, K]: the mean over labels of the binary cross
/// entropy of logits [n, K]; F1 over all labels and samples, accuracy of labels.
std::unique_ptr<Task> make_multi_label(const TaskSettings& settings, const Field& labels);

/// Numbers, `targets` [n] or [n, K]: the mean over them of the squared, absolute or Huber's
/// distance ("Robust Estimation of a Location Parameter", 1964) from outputs [n, K]; R2, the mean
/// over the K numbers as scikit-learn's r2_score has it, MAE and RMSE.
std::unique_ptr<Task> make_regression(const TaskSettings& settings, const Field& targets);

/// A class for each pixel, `masks` whole numbers [n, H, W]: the mean over pixels of the cross
/// entropy of logits [n, classes, H, W]; intersection over union, the mean over classes that are
/// there, and accuracy of pixels.
std::unique_ptr<Task> make_segmentation(const TaskSettings& settings, const Field& masks);

/// What follows each of T tokens, `tokens` whole numbers [n, T + 1]: the mean over places of the
/// cross entropy of logits [n, T, vocabulary]; perplexity, accuracy.
std::unique_ptr<Task> make_next_token(const TaskSettings& settings, const Field& tokens);

}  // namespace lockstep
