// SPDX-License-Identifier: Apache-2.0
// Converts the stored rows of one field to a model's input, on the host or on a GPU, which computes
// with earlier samples meanwhile.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/data/transform_launch.hpp"

#include "model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace lockstep {

/// The kernels that prepare inputs on a GPU. They run on its stream, a cudaStream_t; errors: E681.
struct InputKernels {
    at::Device device = at::kCUDA;
    std::function<void(std::span<const StageLaunch>, void* stream)> transform;
    std::function<void(const MixLaunch&, void* stream)> mix;
    PageLock page_lock;  ///< locks batches: the GPU reads them directly
};

/// A GPU's separate stream for copies and transforms. Results are ready when the stream has reached
/// their place; LibTorch's allocator gives freed memory to later work of this stream.
class DeviceStage {
  public:
    /// Borrows `kernels`.
    explicit DeviceStage(const InputKernels& kernels);

    at::Device device() const { return kernels_.device; }
    c10::Stream stream() const { return stream_; }

    /// Copies to u8 [bytes] from page-locked memory, which must not change until the stream has
    /// copied it.
    at::Tensor copy(std::span<const std::byte> locked) const;

    /// Copies from any host memory, which is read before this returns.
    at::Tensor upload(const at::Tensor& host) const;
    at::Tensor upload(std::span<const std::byte> host) const;
    NamedTensors upload(NamedTensors host) const;

    /// Returns uninitialised floats.
    at::Tensor room(std::size_t floats) const;

    /// Returns the tensor, or a copy of it if its address is no multiple of 64: the address may
    /// decide which kernels read it (docs/decisions/0020-kernels-of-cudnn.md).
    at::Tensor aligned(const at::Tensor& there) const;

    void transform(std::span<const StageLaunch> stages) const;
    void mix(const MixLaunch& launch) const { kernels_.mix(launch, stream_.native_handle()); }

  private:
    const InputKernels& kernels_;
    c10::Stream stream_;
};

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

/// The numbers as they are stored, [n, ...]: whole ones of any type as i64, others as f32. Errors:
/// E248 if `pipeline` does more than normalise what is no image.
std::unique_ptr<FieldInput> make_raw_input(const Field& field, const TransformPipeline& pipeline);

/// Makes the input of masks for a model that compares them itself: i64 [n, H, W], moved as `image`
/// moves its images. Borrows `image`.
std::unique_ptr<FieldInput> make_mask_input(const Field& field,
                                            const FieldInput& image,
                                            std::int64_t outside);

/// Checks that masks can move with such images: whole numbers [H, W] of their size. Errors: E248.
void check_masks_follow(const TransformPipeline& pipeline, const Field& masks, const Field& images);

/// Whether numbers of this type have fractions.
inline bool is_real(ElementType type) {
    return type == ElementType::f32 || type == ElementType::f64;
}

/// Whether make_field_input() takes the field for images: two or three dimensions of u8, or of
/// other numbers that are called images or have an image's layout.
bool is_image(const Field& field);

/// Makes the one of these that suits the field: tokens by its name, images as above, else numbers.
std::unique_ptr<FieldInput> make_field_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics);

}  // namespace lockstep
