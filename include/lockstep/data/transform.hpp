// SPDX-License-Identifier: Apache-2.0
/// @file
/// Image transforms in a text that decides bits: parsed, bound to a shape, and randomised by keys.
#pragma once

#include "lockstep/data/transform_launch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// The steps of a pipeline; transform_help() explains each.
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

/// The source of mean and standard deviation for `normalise`.
enum class Statistics { data_set, imagenet };

/// One step of a pipeline. The kind decides which members are used.
struct TransformOp {
    TransformKind kind = TransformKind::normalise;
    int height = 0;  ///< resize, crops; a resize of width 0 sets the shorter side to `height`
    int width = 0;
    int size = 0;              ///< padding of a crop, taps of a blur, side of a cutout
    double low = 0, high = 0;  ///< probability, degrees, sigma from-to, or alpha
    Statistics statistics = Statistics::data_set;
    bool operator==(const TransformOp&) const = default;
};

/// A list of steps in the user's order. `normalise` is always the last step on a single image;
/// mixup or cutmix, if given, mixes normalised images.
class TransformPipeline {
  public:
    TransformPipeline() = default;  ///< "normalise"

    /// Parses steps and names of presets between commas; transform_help() is the grammar. Errors:
    /// E247 (unknown step, wrong order or arguments), E102 (a number out of range).
    static TransformPipeline parse(std::string_view text);

    /// Returns true if `text`, which must be valid, contains `normalise` by the data set's
    /// statistics. All pipelines normalise, but only this text asks for it. Errors: E247.
    static bool is_asked_to_normalise(std::string_view text);

    /// Returns the steps in the order of their application.
    const std::vector<TransformOp>& ops() const { return ops_; }

    /// Returns the canonical text with every default written out: equal texts give equal bits.
    /// parse(text()) is this pipeline.
    std::string text() const;

    /// Returns the pipeline without randomness: resize, centre crop and normalise stay, a random
    /// crop becomes a centre crop of its size.
    TransformPipeline evaluation() const;

    /// Returns the shape after the pipeline. Errors: E248 if images of this shape cannot pass.
    ImageShape output_shape(const ImageShape& input) const;

    bool mixes_labels() const;  ///< it has mixup or cutmix: a sample then has two labels
    bool moves_pixels() const;  ///< it has a resize, a crop, a flip or a rotation
    bool operator==(const TransformPipeline&) const = default;

  private:
    std::vector<TransformOp> ops_ = {TransformOp{}};
};

/// Returns the steps and presets, for --help.
std::string transform_help();

/// All that a random choice depends on, together with a sample's id and a step's place in the
/// pipeline.
struct TransformKey {
    std::uint64_t seed = 0, epoch = 0;
};

/// Labels of a mixed leaf, by row: the loss is lambda * l(first) + (1 - lambda) * l(second).
struct MixedLabels {
    std::vector<std::int64_t> first, second;
    std::vector<float> lambda;
};

struct BoundTransform;

/// A pipeline for images of one shape. Immutable: any thread may call, and copies are one.
class ImageTransform {
  public:
    /// `mean` and `std` by channel, of value / unit, as in a Field; empty: 0 and 1. Errors: those
    /// of output_shape.
    ImageTransform(const TransformPipeline& pipeline,
                   const ImageShape& input,
                   std::span<const double> mean,
                   std::span<const double> std,
                   double unit = 255);

    /// Makes one of what is bound already.
    explicit ImageTransform(std::shared_ptr<const BoundTransform> bound)
        : bound_(std::move(bound)) {}

    const ImageShape& input() const;   ///< shape of each image
    const ImageShape& output() const;  ///< shape of each image

    /// Transforms `images` u8 [n, C, H, W] to `out`, f32 of n output images in `layout`; `ids` [n]
    /// are the sample numbers. An image's values depend on its bytes, its id and the key only. With
    /// `threads` > 1 as many threads are started and joined, which pays from a millisecond of work.
    void apply(std::span<const std::uint8_t> images,
               std::span<const std::uint64_t> ids,
               TransformKey key,
               PixelLayout layout,
               std::span<float> out,
               int threads = 1) const;

    /// Does the same with numbers in place of bytes.
    void apply(std::span<const float> images,
               std::span<const std::uint64_t> ids,
               TransformKey key,
               PixelLayout layout,
               std::span<float> out) const;

    /// Moves `masks` [n, H, W] as apply() moves the images of `ids`, by nearest pixels: `out`
    /// [n, H, W] of output(). What comes from outside of the image is `outside`. Blur and cutout
    /// change images only.
    void move_masks(std::span<const std::int64_t> masks,
                    std::span<const std::uint64_t> ids,
                    TransformKey key,
                    std::int64_t outside,
                    std::span<std::int64_t> out) const;

    /// Returns partners and shares of the rows of one leaf; `ids` are its sample numbers in order.
    /// Rows whose `valid` is 0, and their partners, stay unmixed (empty: all are valid). Empty if
    /// the pipeline does not mix. Call it for a whole leaf, so that the result does not depend on
    /// the number of ranks.
    std::vector<MixRow> mix_rows(std::span<const std::uint64_t> ids,
                                 TransformKey key,
                                 std::span<const std::uint8_t> valid = {}) const;

    /// Mixes the normalised images of one leaf in place.
    void mix(std::span<float> images,
             std::span<const MixRow> rows,
             PixelLayout layout,
             int threads = 1) const;

    /// Returns the stages that apply() and a GPU execute.
    std::span<const TransformStage> stages() const;
    std::span<const float> mean() const;   ///< f32 [C], in units of stored values
    std::span<const float> scale() const;  ///< f32 [C], in units of stored values

    /// Returns the random choices of apply(): [n, stages().size()], for a GPU.
    std::vector<StageDraw> draw(std::span<const std::uint64_t> ids, TransformKey key) const;

    /// Returns the floats of each of the two scratch buffers that a GPU needs for `images` images.
    std::size_t scratch_values(std::size_t images) const;

  private:
    std::shared_ptr<const BoundTransform> bound_;
};

/// Returns the labels of a leaf after mixing. `labels` i64 [n], `rows` from mix_rows().
MixedLabels mix_labels(std::span<const std::int64_t> labels, std::span<const MixRow> rows);

/// Returns the stages over a batch, for the entry point of liblockstep_cuda.so. `batch` is as one
/// stage would do it all: `bytes` or `floats`, `draws` (the result of draw()), `mean`, `scale`,
/// `out`, `layout`, and the number of images. `scratch`: scratch_values() floats each; may be null
/// if that is 0. The caller allocates all memory on the device.
std::vector<StageLaunch> plan_launches(const ImageTransform& transform,
                                       const StageLaunch& batch,
                                       std::array<float*, 2> scratch = {});

}  // namespace lockstep
