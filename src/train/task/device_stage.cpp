// SPDX-License-Identifier: Apache-2.0
#include "task/device_stage.hpp"

#include <cstdint>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

namespace lockstep {
namespace {

at::Tensor bytes_at(std::span<const std::byte> memory) {
    return torch::from_blob(const_cast<std::byte*>(memory.data()),
                            {static_cast<std::int64_t>(memory.size())},
                            torch::kUInt8);
}

}  // namespace

DeviceStage::DeviceStage(const InputKernels& kernels)
    : kernels_(kernels),
      stream_(c10::impl::VirtualGuardImpl(kernels.device.type())
                  .getStreamFromGlobalPool(kernels.device)) {}

at::Tensor DeviceStage::copy(std::span<const std::byte> locked) const {
    const c10::StreamGuard guard(stream_);
    return bytes_at(locked).to(device(), torch::kUInt8, /*non_blocking=*/true);
}

at::Tensor DeviceStage::upload(const at::Tensor& host) const {
    const c10::StreamGuard guard(stream_);
    return host.pin_memory().to(device(), /*non_blocking=*/true);
}

at::Tensor DeviceStage::upload(std::span<const std::byte> host) const {
    return upload(bytes_at(host));
}

NamedTensors DeviceStage::upload(NamedTensors host) const {
    for (NamedTensor& named : host) named.tensor = upload(named.tensor);
    return host;
}

at::Tensor DeviceStage::room(std::size_t floats) const {
    const c10::StreamGuard guard(stream_);
    return torch::empty({static_cast<std::int64_t>(floats)},
                        at::TensorOptions(at::kFloat).device(device()));
}

at::Tensor DeviceStage::aligned(const at::Tensor& there) const {
    constexpr std::uintptr_t line = 64;
    if (reinterpret_cast<std::uintptr_t>(there.const_data_ptr()) % line == 0) return there;
    const c10::StreamGuard guard(stream_);
    return there.clone();
}

void DeviceStage::transform(std::span<const StageLaunch> stages) const {
    kernels_.transform(stages, stream_.native_handle());
}

}  // namespace lockstep
