// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda_graph.so: calls LibTorch's CUDA part by its own names. They are found in
// libtorch_cuda.so, which the process has loaded before; nothing is linked with it.
#include "replica/device_graph.hpp"

#include <cstdint>
#include <exception>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>

namespace lockstep {
namespace {

class CudaGraph final : public DeviceGraph {
  public:
    void begin(const DeviceGraph* before, std::span<const at::Generator> draws) override {
        const auto* const other = static_cast<const CudaGraph*>(before);
        const at::cuda::MempoolId_t own{0, 0};
        seed_ = generator().current_seed();
        offset_ = generator().get_offset();
        for (const at::Generator& draw : draws) graph_.register_generator_state(draw);
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
        try {
            restore_generator();
        } catch (const std::exception&) {
            // The GPU is lost: its next call says so.
        }
    }
    void replay() override { graph_.replay(); }

  private:
    static const at::Generator& generator() {
        return at::globalContext().defaultGenerator(at::Device(at::kCUDA));
    }

    void restore_generator() const {
        // LibTorch leaves the generator in a recording that never ends: the next dropout would
        // throw. It also believes that a recorded LSTM has drawn the state of its dropout.
        // set_current_seed() mends that.
        at::Generator generator = CudaGraph::generator();
        generator.graphsafe_set_state(
            at::globalContext().getAcceleratorHooksInterface(at::kCUDA).getNewGenerator(
                generator.device().index()));
        generator.set_current_seed(seed_);
        generator.set_offset(offset_);
    }

    at::cuda::CUDAGraph graph_;
    std::uint64_t seed_ = 0, offset_ = 0;  // of the generator before
    at::cuda::MempoolId_t pool_{0, 0};
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::DeviceGraph* lockstep_new_device_graph() {
    return new lockstep::CudaGraph;
}
