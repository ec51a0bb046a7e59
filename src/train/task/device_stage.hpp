// SPDX-License-Identifier: Apache-2.0
// Copies samples to a GPU while it computes with earlier ones.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/transform_launch.hpp"

#include "model/model.hpp"

#include <cstddef>
#include <functional>
#include <span>

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

}  // namespace lockstep
