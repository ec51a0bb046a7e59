// SPDX-License-Identifier: Apache-2.0
// How samples get onto a GPU while it computes with those before them.
#pragma once

#include "lockstep/core/page_lock.hpp"
#include "lockstep/data/transform_launch.hpp"

#include "model/model.hpp"

#include <cstddef>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace lockstep {

/// What a GPU prepares inputs with. Kernels go to a stream of it, a cudaStream_t; errors: E681.
struct InputKernels {
    at::Device device = at::kCUDA;
    std::function<void(std::span<const StageLaunch>, void* stream)> transform;
    std::function<void(const MixLaunch&, void* stream)> mix;
    PageLock page_lock;  ///< of batches: the GPU reads them by itself
};

/// A stream of a GPU's own for copies and transforms. What is made here is ready when the stream
/// has come so far; LibTorch's allocator gives freed memory to later work of this stream.
class DeviceStage {
  public:
    /// Borrows `kernels`.
    explicit DeviceStage(const InputKernels& kernels);

    at::Device device() const { return kernels_.device; }
    c10::Stream stream() const { return stream_; }

    /// u8 [bytes], of page-locked memory, which stays as it is until the stream has copied it.
    at::Tensor copy(std::span<const std::byte> locked) const;

    /// Of any memory of the host, which is read before this returns.
    at::Tensor upload(const at::Tensor& host) const;
    at::Tensor upload(std::span<const std::byte> host) const;
    NamedTensors upload(NamedTensors host) const;

    /// Floats that nobody has written.
    at::Tensor room(std::size_t floats) const;

    void transform(std::span<const StageLaunch> stages) const;
    void mix(const MixLaunch& launch) const;

  private:
    const InputKernels& kernels_;
    c10::Stream stream_;
};

}  // namespace lockstep
