// SPDX-License-Identifier: Apache-2.0
#include "replica/gpu.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/nccl_exchange.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "replica/torch_cuda.hpp"

#include <limits>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

constexpr double claim_deadline_s = 30;
constexpr std::int64_t room_floats = 1 << 22;

// The stream on which LibTorch computes, and with which others' wait by themselves.
constexpr GpuStream torch_stream = nullptr;

using UpdateFunction = int (*)(const UpdateLaunch*, void* stream);

/// Kernels on LibTorch's stream; what the host must see it waits for.
class GpuLoops : public UpdateLoops {
  public:
    GpuLoops(std::shared_ptr<const GpuRuntime> runtime, FlatMemory& memory, at::Device device)
        : runtime_(std::move(runtime)),
          update_(reinterpret_cast<UpdateFunction>(runtime_->function("lockstep_cuda_update"))),
          memory_(memory),
          room_(torch::empty({room_floats}, at::TensorOptions(at::kFloat).device(device))) {}

    void run(const UpdateLaunch& launch) override {
        check_cuda(*runtime_, update_(&launch, torch_stream), "the kernel of an update");
    }

    void add_squares(ExactSum& sum, const float* values, std::size_t count) override {
        seen_.resize(count);
        memory_.wait();
        memory_.copy(seen_.data(), values, count);
        memory_.wait();
        sum.add_squares(seen_);
    }

    std::span<float> room() override {
        return {room_.data_ptr<float>(), static_cast<std::size_t>(room_.numel())};
    }

  private:
    std::shared_ptr<const GpuRuntime> runtime_;
    UpdateFunction update_;
    FlatMemory& memory_;
    at::Tensor room_;
    std::vector<float> seen_;
};

Error no_gpu_planned() {
    return {"E670",
            "--device cuda, but the placement gives this rank no GPU",
            "its node has none that this process may use",
            "'lockstep map' shows who gets what; ask for GPUs (sbatch --gpus-per-node), or use "
            "--device cpu"};
}

}  // namespace

Gpu::Gpu(const Communicator& ranks, const TrainSettings& settings)
    : bootstrap_(make_bootstrap(ranks)),
      timeout_s_(settings.comm_timeout_s > 0 ? settings.comm_timeout_s
                                             : std::numeric_limits<double>::infinity()) {
    agree(ranks, [&] {
        check(!settings.gpu.pci.empty(), no_gpu_planned);
        load_torch_cuda();  // with an NCCL, which is then the process's
        runtime_ = GpuRuntime::open();
    });
    selected_ = claim_gpu(runtime_->cuda(), settings.gpu, *bootstrap_, claim_deadline_s);
    agree(ranks, [&] { use_torch_device(device()); });
}

at::Device Gpu::device() const {
    return {at::kCUDA, static_cast<c10::DeviceIndex>(selected_.device)};
}

std::string Gpu::text() const {
    return fmt::format("{} ({})", selected_.name, selected_.pci);
}

std::unique_ptr<Exchange> Gpu::make_exchange(const FlatLayout& layout, const TreePlan& plan) {
    NcclOptions options;
    options.device = selected_.device;
    options.collective_deadline_s = timeout_s_;
    communicator_.emplace(runtime_, *bootstrap_, options);
    return make_nccl_exchange(*communicator_, layout, plan, torch_stream);
}

UpdateLoops& Gpu::make_loops(Exchange& exchange) {
    loops_ = std::make_unique<GpuLoops>(runtime_, exchange.memory(), device());
    return *loops_;
}

std::unique_ptr<Gpu> settle_device(const Communicator& ranks, TrainSettings& settings) {
    const bool is_asked_for = settings.device == DeviceKind::cuda;
    std::int64_t lacks_one = settings.gpu.pci.empty() ? 1 : 0;
    ranks.all_reduce_max({&lacks_one, 1});
    std::unique_ptr<Gpu> gpu;
    if (is_asked_for || (settings.device == DeviceKind::automatic && lacks_one == 0)) {
        try {
            gpu = std::make_unique<Gpu>(ranks, settings);
        } catch (const Error& error) {
            if (is_asked_for) throw;
            settings.warnings.push_back(
                fmt::format("GPUs are left idle: {}; {}", error.what(), error.why()));
        }
    }
    settings.device = gpu ? DeviceKind::cuda : DeviceKind::cpu;
    return gpu;
}

}  // namespace lockstep
