// SPDX-License-Identifier: Apache-2.0
// What a model's outputs mean: a loss and metrics that are sums over samples, so that they add over
// leaves and ranks, and one formula at the end.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/transform.hpp"

#include "model/model.hpp"

#include <cstdint>
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
};

/// What a leaf's targets are made of.
struct LeafSource {
    const Batch& batch;
    const LeafRows& leaf;
    const DatasetIndex& index;         ///< of the batch's fields
    TransformKey key;                  ///< by which inputs were transformed
    const std::vector<MixRow>& mixed;  ///< what FieldInput::mix() did to them
};

/// What evaluation adds up. Reals are added in the order of leaves; counts are exact in any.
struct TaskSums {
    std::vector<double> reals;
    std::vector<std::int64_t> counts;
};

/// What a run says about itself after an evaluation.
struct Metric {
    std::string name;
    double value = 0;
};
struct Evaluation {
    double loss = 0;              ///< mean over samples
    std::vector<Metric> metrics;  ///< the one that counts first
    std::string text;             ///< of metrics, for people
};

/// Immutable: any thread may call.
class Task {
  public:
    virtual ~Task() = default;

    /// Numbers that a model has to give for a sample.
    virtual std::int64_t outputs() const = 0;

    /// Whether a model that learns this can be evaluated on `test`. Errors: E217.
    virtual void check_test_data(const DatasetIndex& test) const = 0;

    virtual NamedTensors targets(const LeafSource& source) const = 0;

    /// Targets of `count` samples that are made up, the same everywhere.
    virtual NamedTensors blank_targets(std::int64_t count) const = 0;

    /// Summed over samples, masked ones counting nothing. Scalar.
    virtual at::Tensor loss(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// As many of both as sums() gives.
    virtual TaskSums no_sums() const = 0;

    /// Of these samples; the first real is their loss.
    virtual TaskSums sums(const NamedTensors& outputs, const LeafSamples& samples) const = 0;

    /// The final formula: `sums` are those of `samples` samples.
    virtual Evaluation evaluation(const TaskSums& sums, std::int64_t samples) const = 0;
};

/// What `data` are for. Errors: E207, E217 if its "labels" are not u8, i32 or i64 [n].
std::unique_ptr<Task> make_task(const DatasetIndex& data);

/// Which class a sample is of: cross entropy of logits [n, classes], accuracy. A mixed sample
/// counts lambda * CE(label) + (1 - lambda) * CE(partner's label).
std::unique_ptr<Task> make_classification(const Field& labels);

}  // namespace lockstep
