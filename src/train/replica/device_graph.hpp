// SPDX-License-Identifier: Apache-2.0
// Work of a GPU that is recorded once and started many times: CUDA graphs, as LibTorch has them.
#pragma once

#include <functional>
#include <memory>

namespace lockstep {

/// One recording. Errors of all are LibTorch's.
class DeviceGraph {
  public:
    virtual ~DeviceGraph() = default;

    /// From here to end() nothing that is asked of the calling thread's current stream is done: it
    /// is recorded. Not the default stream. What is allocated meanwhile lives as long as this, in
    /// the memory of `before` if there is one; the two are then replayed in this order only.
    virtual void begin(const DeviceGraph* before) = 0;
    virtual void end() = 0;

    /// In place of end(), after something that cannot be recorded. The generator is as begin()
    /// found it. What was recorded before must not be replayed any more: it draws from the
    /// generator's old state.
    virtual void abandon() noexcept = 0;

    /// Asks the current stream for what was recorded, with the generator's numbers of now.
    virtual void replay() = 0;
};

using MakeDeviceGraph = std::function<std::unique_ptr<DeviceGraph>()>;

/// Of liblockstep_cuda_graph.so.
using DeviceGraphEntryPoint = DeviceGraph* (*)();
constexpr const char* device_graph_entry_point = "lockstep_new_device_graph";

}  // namespace lockstep
