// SPDX-License-Identifier: Apache-2.0
// Work of a GPU that is recorded once and started many times: CUDA graphs, through LibTorch.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include <ATen/core/Generator.h>

namespace lockstep {

/// One recording. All errors are LibTorch's.
class DeviceGraph {
  public:
    virtual ~DeviceGraph() = default;

    /// Begins recording: until end() work of the calling thread's current stream is recorded and
    /// not executed. Not the default stream. Memory allocated in that time lives as long as this,
    /// in the pool of `before` if there is one; the two are then replayed in this order only.
    /// Random numbers come from the device's default generator, or from one of `draws`.
    virtual void begin(const DeviceGraph* before, std::span<const at::Generator> draws) = 0;
    virtual void end() = 0;

    /// In place of end(), or after it threw, after something that cannot be recorded. The generator
    /// is as begin() found it. What was recorded before must not be replayed any more: it draws
    /// from the generator's old state.
    virtual void abandon() noexcept = 0;

    /// Starts the recorded work on the current stream, with the generators' present numbers.
    virtual void replay() = 0;
};

using MakeDeviceGraph = std::function<std::unique_ptr<DeviceGraph>()>;

/// The type of the entry point of liblockstep_cuda_graph.so.
using DeviceGraphEntryPoint = DeviceGraph* (*)();
constexpr const char* device_graph_entry_point = "lockstep_new_device_graph";

}  // namespace lockstep
