// SPDX-License-Identifier: Apache-2.0
// Converts bytes of a batch to a model's inputs, on its device.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/train/model.hpp"

#include "task/field_input.hpp"
#include "task/task.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Where in the index's fields those lie that `names` has ("images,age"), in its order. "": that of
/// "images", or "features" where there is none, or "tokens" where there is neither. Errors: E207 if
/// there is none, E217 if one is named twice or has more than four dimensions.
std::vector<std::size_t> input_places(const DatasetIndex& index, const std::string& names);

/// Errors: E217 if one of them is what models learn.
void check_no_targets(const DatasetIndex& index, const std::string& names);

/// Whether these are as many as `wanted`, which a model takes, and in its order where they have the
/// model's names; nobody may know: then it is empty. Errors: E217 with the fields that there are.
void check_input_count(std::span<const std::string> wanted,
                       const DatasetIndex& index,
                       const TrainSettings& settings);

/// One of the input_places().
struct GivenInput {
    bool is_number(const DatasetIndex& index) const;  ///< neither raw nor tokens

    std::size_t place;
    /// Given as it is stored: what a model compares itself, whole numbers for a program that takes
    /// such, and tokens of every task but next-token, which holds back the last one.
    bool is_raw;
};

/// Returns the inputs of a model, in its order. Errors: those of input_places() and of
/// program_inputs().
std::vector<GivenInput> given_inputs(const DatasetIndex& index, const TrainSettings& settings);

/// Whether a field of this name is what models learn: labels, targets, masks.
bool is_learned(const std::string& field);

/// Returns text for the log, by input: its stored numbers, and their conversion. `settings` has the
/// canonical text of transforms. "images: u8, C 3, H 32, W 32, divided by 255, ...". Fields that
/// are neither inputs nor learned follow.
std::vector<std::string> input_texts(const DatasetIndex& index, const TrainSettings& settings);

/// Returns the field with the mean and deviation that --normalise has for it: its own, none, or
/// given ones. Errors: E103 for other text.
Field normalised_as(Field field, const std::string& normalise);

/// Returns the data set with normalised_as() of all fields that are not learned.
DatasetIndex with_used_statistics(const DatasetIndex& data, const std::string& normalise);

/// Returns the treatment of a field's numbers between the data set and the model, for the log.
std::string treatment(const Field& field, const TrainSettings& settings, ManifestKind kind);

/// Returns a warning of inputs after the first that are normalised although nobody asked for it; ""
/// if there are none, or if the model does not compare inputs itself.
std::string normalised_inputs_warning(const DatasetIndex& index, const TrainSettings& settings);

/// Checks that --normalise, and a `normalise` in `transform` as the user wrote it, have an effect
/// on the inputs. Errors: E248; E103 as normalised_as(), or for a field that is no input.
void check_normalises(const TrainSettings& settings,
                      const std::string& transform,
                      const DatasetIndex& index);

/// Makes tensors of one data set's rows. Inputs are f32 [n, C, H, W], channels innermost in memory,
/// or tokens i64 [n, T], of the input_places(). Images pass a pipeline of transforms, keyed by the
/// settings' seed, epoch and sample; masks move with them. Targets are the task's. Borrows index
/// and task. Errors: E207, E217 if the fields differ; E248 if they do not suit the pipeline.
class InputReader {
  public:
    /// `statistics`: the training data set, whose mean and deviation `normalise` uses.
    InputReader(const DatasetIndex& index,
                const TransformPipeline& pipeline,
                const TrainSettings& settings,
                const DatasetIndex& statistics,
                const Task& task);

    /// Returns the shape for the model: that of transformed images.
    const ModelShape& shape() const { return shape_; }

    /// Reads a whole leaf: mixing pairs its samples, for any number of ranks.
    LeafSamples read(const Batch& batch, const LeafRows& leaf) const;

    /// Reads all leaves of `batch` to the device of `stage`, with the bits of read(). The batch's
    /// memory is page-locked and stays until the stream of `stage` has read it.
    std::vector<LeafSamples> read_on(const DeviceStage& stage, const Batch& batch) const;

    /// Reads its inputs alone, not mixed: the data set needs no targets.
    NamedTensors read_inputs(const Batch& batch, const LeafRows& leaf) const;

  private:
    struct Source {
        std::size_t place;  ///< position among the index's fields
        std::unique_ptr<FieldInput> field;
    };

    void move_masks(const TransformPipeline& pipeline, const TrainSettings& settings);
    KeyedSamples keyed(const Batch& batch, const LeafRows& rows) const;
    std::span<const std::byte> rows_of(const Batch& batch,
                                       std::size_t place,
                                       const LeafRows& rows) const;

    LeafSamples samples(NamedTensors inputs,
                        const Batch& batch,
                        const LeafRows& leaf,
                        const DeviceStage* stage) const;

    const DatasetIndex& index_;
    const Task& task_;
    ClassNumbers classes_;
    std::uint64_t seed_;
    std::vector<Source> sources_;
    const FieldInput* mover_ = nullptr;  ///< what moves masks; null: they stay
    std::int64_t outside_ = 0;           ///< their class outside of images
    ModelShape shape_;
};

/// Makes a reader for evaluation: without the randomness in the settings' pipeline, normalised by
/// the statistics of `trained`, the training data set.
InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings,
                             const Task& task);

/// Checks that a model trained on `data` can take `test`: equal shapes and units, no tokens beyond
/// its vocabulary. Errors: E217; those of InputReader.
void check_test_inputs(const DatasetIndex& test,
                       const DatasetIndex& data,
                       const TrainSettings& settings,
                       const Task& task);

/// A rank's batches as samples on its model's device.
class SampleFeed {
  public:
    virtual ~SampleFeed() = default;

    /// Replaces the batch by the next one; only work enqueued before may still read the old one.
    /// Errors: those of BatchStream::next().
    virtual const Batch& next() = 0;

    /// Returns the present batch.
    virtual const Batch& batch() const = 0;

    /// Returns samples of that batch. They are valid until next() on the device's current stream.
    virtual LeafSamples read(const LeafRows& leaf) = 0;

    /// Prepares the next batch in parallel. Call it when the device has enough work. Does not fail;
    /// next() does.
    virtual void look_ahead() {}

    /// Returns the seconds since the last call for which finished batches were copied and
    /// transformed on the device, hidden behind the model's work or not. Nothing without a device.
    virtual std::optional<double> take_copy_s() { return {}; }
};

/// Makes a feed of `stream`. Without `kernels` each leaf is read on the host when it is requested.
/// With them a whole batch is copied and transformed on a separate stream, the next one while the
/// model computes: the bits are the same. `kernels->page_lock` locks the batches of `stream`.
/// Borrows all.
std::unique_ptr<SampleFeed> make_feed(BatchStream& stream,
                                      const InputReader& input,
                                      const InputKernels* kernels);

}  // namespace lockstep
