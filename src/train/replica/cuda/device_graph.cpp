// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda_graph.so: calls LibTorch's CUDA part by its own names. They are found in
// libtorch_cuda.so, which the process has loaded before; nothing is linked with it.
#include "replica/device_graph.hpp"

#include <exception>

#include <ATen/cuda/CUDAGraph.h>

namespace lockstep {
namespace {

class CudaGraph final : public DeviceGraph {
  public:
    void begin(const DeviceGraph* before) override {
        const auto* const other = static_cast<const CudaGraph*>(before);
        const at::cuda::MempoolId_t own{0, 0};
        // Other threads of a rank call CUDA meanwhile: what they do is none of the recording's.
        graph_.capture_begin(other == nullptr ? own : other->pool_,
                             cudaStreamCaptureModeThreadLocal);
    }
    void end() override {
        graph_.capture_end();
        pool_ = graph_.pool();
    }
    void abandon() noexcept override {
        try {
            graph_.capture_end();
        } catch (const std::exception&) {
            // Says again what went wrong, and that the stream records no more.
        }
    }
    void replay() override { graph_.replay(); }

  private:
    at::cuda::CUDAGraph graph_;
    at::cuda::MempoolId_t pool_{0, 0};
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::DeviceGraph* lockstep_new_device_graph() {
    return new lockstep::CudaGraph;
}
