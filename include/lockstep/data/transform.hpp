// SPDX-License-Identifier: Apache-2.0
/// @file
/// Image transforms written as a text that decides bits: parsed, bound to a shape, drawn by keys.
#pragma once

#include "lockstep/data/transform_launch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Shape of one image.
struct ImageShape {
    int channels = 0, height = 0, width = 0;
    std::size_t values() const {  ///< channels * height * width
        return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) *
               static_cast<std::size_t>(width);
    }
    bool operator==(const ImageShape&) const = default;
};

/// The steps of a pipeline; transform_help() says what each does.
enum class TransformKind {
    resize,
    crop,
    centre_crop,
    flip,
    rotate,
    blur,
    cutout,
    normalise,
    mixup,
    cutmix,
};

/// Whose mean and standard deviation `normalise` uses.
enum class Statistics { data_set, imagenet };

/// One step of a pipeline. Which members count depends on the kind.
struct TransformOp {
    TransformKind kind = TransformKind::normalise;
    int height = 0;  ///< resize, crops; a resize of width 0 sets the shorter side to `height`
    int width = 0;
    int size = 0;              ///< padding of a crop, taps of a blur, side of a cutout
    double low = 0, high = 0;  ///< probability, degrees, sigma from-to, or alpha
    Statistics statistics = Statistics::data_set;
    bool operator==(const TransformOp&) const = default;
};

/// A list of steps as the user wrote it. `normalise` is always the last that is done to an image by
/// itself; mixup or cutmix, if there is one, mixes normalised images.
class TransformPipeline {
  public:
    TransformPipeline() = default;  ///< "normalise"

    /// Steps and names of presets between commas; transform_help() is the grammar.
    /// Errors: E247 (unknown step, wrong order or arguments), E102 (a number out of range).
    static TransformPipeline parse(std::string_view text);

    /// Whether `text`, of which this can be made, has `normalise` by the data set's statistics: all
    /// pipelines do it, but who writes it wants it. Errors: E247.
    static bool is_asked_to_normalise(std::string_view text);

    /// In the order in which they are applied.
    const std::vector<TransformOp>& ops() const { return ops_; }

    /// The canonical text, every default written out: equal texts give equal bits.
    /// parse(text()) is this pipeline.
    std::string text() const;

    /// Without what is random: resize, centre crop and normalise stay, a random crop becomes a
    /// centre crop of its size.
    TransformPipeline evaluation() const;

    /// Errors: E248 if images of this shape cannot go through.
    ImageShape output_shape(const ImageShape& input) const;

    bool mixes_labels() const;  ///< it has mixup or cutmix: a sample then has two labels
    bool operator==(const TransformPipeline&) const = default;

  private:
    std::vector<TransformOp> ops_ = {TransformOp{}};
};

/// The steps and presets, for --help.
std::string transform_help();

/// With a sample's id and a step's place in the pipeline: all that a random choice depends on.
struct TransformKey {
    std::uint64_t seed = 0, epoch = 0;
};

/// Labels of a mixed leaf, by row: the loss is lambda * l(first) + (1 - lambda) * l(second).
struct MixedLabels {
    std::vector<std::int64_t> first, second;
    std::vector<float> lambda;
};

struct BoundTransform;

/// A pipeline for images of one shape. Immutable: any thread may call.
class ImageTransform {
  public:
    /// `mean` and `std` by channel, of value / 255, as in a Field; empty: 0 and 1.
    /// Errors: those of output_shape.
    ImageTransform(const TransformPipeline& pipeline,
                   const ImageShape& input,
                   std::span<const double> mean,
                   std::span<const double> std);
    ~ImageTransform();

    /// What was moved from may only be destroyed.
    ImageTransform(ImageTransform&&) noexcept;

    const ImageShape& input() const;   ///< of each image
    const ImageShape& output() const;  ///< of each image

    /// `images` u8 [n, C, H, W], `ids` [n] the sample numbers, `out` f32 of n output images in
    /// `layout`. An image's values depend on its bytes, its id and the key only. With `threads` > 1
    /// as many threads are started and joined: worth it from a millisecond of work.
    void apply(std::span<const std::uint8_t> images,
               std::span<const std::uint64_t> ids,
               TransformKey key,
               PixelLayout layout,
               std::span<float> out,
               int threads = 1) const;

    /// Partners and shares of the rows of one leaf, `ids` being its sample numbers in order; rows
    /// whose `valid` is 0, and their partners, stay unmixed (empty: all are valid). Empty if the
    /// pipeline does not mix. To depend on no number of ranks, call it for a whole leaf.
    std::vector<MixRow> mix_rows(std::span<const std::uint64_t> ids,
                                 TransformKey key,
                                 std::span<const std::uint8_t> valid = {}) const;

    /// Mixes the normalised images of one leaf in place.
    void mix(std::span<float> images,
             std::span<const MixRow> rows,
             PixelLayout layout,
             int threads = 1) const;

    /// The stages that apply() and a GPU execute.
    std::span<const TransformStage> stages() const;
    std::span<const float> mean() const;   ///< f32 [C], in units of u8
    std::span<const float> scale() const;  ///< f32 [C], in units of u8

    /// What apply() draws: [n, stages().size()], to be sent to a GPU with the images.
    std::vector<StageDraw> draw(std::span<const std::uint64_t> ids, TransformKey key) const;

    /// Floats of each of the two scratch buffers that a GPU needs for `images` images.
    std::size_t scratch_values(std::size_t images) const;

  private:
    std::unique_ptr<const BoundTransform> bound_;
};

/// Labels of a leaf after mixing. `labels` i64 [n], `rows` from mix_rows().
MixedLabels mix_labels(std::span<const std::int64_t> labels, std::span<const MixRow> rows);

/// A device's memory for a batch; all of it allocated by the caller.
struct DeviceBatch {
    const std::uint8_t* images = nullptr;  ///< u8 [n, C, H, W]
    const StageDraw* draws = nullptr;      ///< as draw() returned them
    const float *mean = nullptr, *scale = nullptr;
    float* scratch[2] = {};  ///< scratch_values() floats each; may be null if that is 0
    float* out = nullptr;
    PixelLayout layout = PixelLayout::nchw;
    std::int64_t count = 0;  ///< n
};

/// The stages over a batch, for the entry point of liblockstep_cuda.so.
std::vector<StageLaunch> plan_launches(const ImageTransform& transform, const DeviceBatch& batch);

}  // namespace lockstep
