// SPDX-License-Identifier: Apache-2.0
// Converts the stored rows of one field to a model's input.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/transform.hpp"

#include "task/device_stage.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Samples by their numbers, and the key of their transforms.
struct KeyedSamples {
    std::span<const std::uint64_t> ids;
    TransformKey key;
};

/// Reads rows of one field. Immutable: any thread may call.
class FieldInput {
  public:
    virtual ~FieldInput() = default;

    /// Returns the shape of one sample for the model.
    virtual ImageShape shape() const = 0;

    /// Returns the slices of one sample that is a volume.
    virtual int depth() const { return 1; }

    /// Returns f32 [n, C, H, W], channels innermost in memory, volumes f32 [n, C, D, H, W], or
    /// tokens i64 [n, W], in memory of its own. `rows` are the stored bytes of the n `samples`.
    virtual at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const = 0;

    /// Does the same on the device of `stage`, with the same bits; `rows` are page-locked, and stay
    /// until its stream has read them.
    virtual at::Tensor read_on(const DeviceStage& stage,
                               std::span<const std::byte> rows,
                               const KeyedSamples& samples) const {
        return stage.upload(read(rows, samples));
    }

    /// Moves masks i64 [n, H, W] as it moves the images of `samples`; what comes from outside of
    /// these is `outside`.
    virtual at::Tensor move_masks(const at::Tensor& masks,
                                  const KeyedSamples& /*samples*/,
                                  std::int64_t /*outside*/) const {
        return masks;
    }

    /// Mixes the `values` of one leaf in place by ImageTransform::mix_rows: on the device of
    /// `stage`, or on the host if it is null. Returns the partners and shares; empty if nothing is
    /// mixed.
    virtual std::vector<MixRow> mix(const DeviceStage* /*stage*/,
                                    at::Tensor& /*values*/,
                                    const KeyedSamples& /*samples*/,
                                    std::span<const std::uint8_t> /*valid*/) const {
        return {};
    }
};

/// Returns the rows as they are stored, [samples, ...], in their own memory.
at::Tensor stored_rows(std::span<const std::byte> rows, const Field& field, std::size_t samples);

/// The numbers as they are stored, [n, ...]: whole ones of any type as i64, others as f32.
std::unique_ptr<FieldInput> make_raw_input(const Field& field);

/// Makes the input of masks for a model that compares them itself: i64 [n, H, W], moved as `image`
/// moves its images. Borrows `image`.
std::unique_ptr<FieldInput> make_mask_input(const Field& field,
                                            const FieldInput& image,
                                            std::int64_t outside);

/// Checks that masks can move with such images: whole numbers [H, W] of their size. Errors: E248.
void check_masks_follow(const TransformPipeline& pipeline, const Field& masks, const Field& images);

/// Whether make_field_input() takes the field for images: two or three dimensions of u8, or of
/// other numbers that are called images or have an image's layout.
bool is_image(const Field& field);

/// Makes the one of these that suits the field: tokens by its name, images as above, else numbers.
std::unique_ptr<FieldInput> make_field_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics);

}  // namespace lockstep
