// SPDX-License-Identifier: Apache-2.0
#include "replica/gpu_loops.hpp"

#include <algorithm>

#include <torch/types.h>

namespace lockstep {
namespace {

constexpr std::int64_t room_floats = 1 << 22;

using UpdateFunction = int (*)(const UpdateLaunch*, void* stream);

class GpuLoops : public UpdateLoops {
  public:
    GpuLoops(const std::shared_ptr<const GpuRuntime>& runtime,
             GpuExchange& exchange,
             at::Device device,
             GpuStream stream)
        : runtime_(runtime),
          exchange_(exchange),
          device_(device),
          stream_(stream),
          update_(function<UpdateFunction>("lockstep_cuda_update")),
          squares_(function<exact::SquaresEntryPoint>(exact::squares_entry_point)),
          decide_(function<DecideEntryPoint>(decide_entry_point)),
          own_rates_(function<OwnRatesEntryPoint>(own_rates_entry_point)),
          room_(floats(room_floats)),
          decision_(floats(sizeof(UpdateDecision) / sizeof(float))) {}

    void run(const UpdateLaunch& launch) override {
        check_cuda(*runtime_, update_(&launch, stream_), "the kernel of an update");
    }

    std::int64_t* sums(std::size_t count) override {
        constexpr std::size_t floats_of_sum = exact::words * sizeof(std::int64_t) / sizeof(float);
        float* const all = reserve(sums_, count * floats_of_sum);
        exchange_.memory().clear(all, count * floats_of_sum);
        return reinterpret_cast<std::int64_t*>(all);
    }

    void add_squares(std::int64_t* sum, const float* values, std::size_t count) override {
        const exact::SquaresLaunch launch{
            .values = values, .count = static_cast<std::int64_t>(count), .words = sum};
        check_cuda(*runtime_, squares_(&launch, stream_), "the kernel of a norm");
    }

    void sum_over(const Communicator&, std::int64_t* sums, std::size_t count) override {
        exchange_.add_up(sums, count * exact::words);
    }

    const UpdateDecision* decide(DecisionLaunch launch) override {
        launch.out = reinterpret_cast<UpdateDecision*>(decision_.data_ptr<float>());
        check_cuda(*runtime_, decide_(&launch, stream_), "the kernel of a decision");
        return launch.out;
    }

    const float* own_rates(OwnRatesLaunch launch) override {
        launch.out = reserve(rates_, static_cast<std::size_t>(launch.tensors));
        check_cuda(*runtime_, own_rates_(&launch, stream_), "the kernel of tensors' own rates");
        return launch.out;
    }

    std::span<float> room() override { return {room_.data_ptr<float>(), room_floats}; }

  private:
    template <class Function>
    Function function(const char* name) const {
        return reinterpret_cast<Function>(runtime_->function(name));
    }
    at::Tensor floats(std::int64_t count) const {
        return torch::empty({count}, at::TensorOptions(at::kFloat).device(device_));
    }
    /// Of a size that the first step makes for good.
    float* reserve(at::Tensor& tensor, std::size_t count) const {
        const auto wanted = static_cast<std::int64_t>(count);
        if (!tensor.defined() || tensor.numel() < wanted) tensor = floats(wanted);
        return tensor.data_ptr<float>();
    }

    const std::shared_ptr<const GpuRuntime> runtime_;
    GpuExchange& exchange_;
    const at::Device device_;
    const GpuStream stream_;
    const UpdateFunction update_;
    const exact::SquaresEntryPoint squares_;
    const DecideEntryPoint decide_;
    const OwnRatesEntryPoint own_rates_;
    at::Tensor room_, decision_, sums_, rates_;
};

}  // namespace

std::unique_ptr<UpdateLoops> make_gpu_loops(const std::shared_ptr<const GpuRuntime>& runtime,
                                            GpuExchange& exchange,
                                            c10::Device device,
                                            GpuStream stream) {
    return std::make_unique<GpuLoops>(runtime, exchange, device, stream);
}

}  // namespace lockstep
