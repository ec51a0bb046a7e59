// SPDX-License-Identifier: Apache-2.0
#include "replica/gpu.hpp"

#include "lockstep/cluster/topology.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "replica/gpu_loops.hpp"
#include "replica/torch_cuda.hpp"

#include <cstdlib>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double claim_deadline_s = 30, watchdog_speaks_s = 5;

// The stream on which LibTorch computes, and with which others' wait by themselves.
constexpr GpuStream torch_stream = nullptr;

/// Collective. What the user has set stays.
void let_nccl_share_gpus(const Communicator& ranks) {
    const bool is_one_node = ranks.split_by_node().size() == ranks.size();
    const auto reach = is_one_node ? SharingReach::one_node : SharingReach::several_nodes;
    for (const auto& [name, value] : nccl_variables_of_sharing(ranks.rank(), reach))
        ::setenv(name.c_str(), value.c_str(), 0);
}

Error no_gpu_planned() {
    return {"E670",
            "--device cuda, but the placement gives this rank no GPU",
            "its node has none that this process may use",
            "'lockstep map' shows who gets what; ask for GPUs (sbatch --gpus-per-node), or use "
            "--device cpu"};
}

}  // namespace

InputKernels make_input_kernels(const std::shared_ptr<const GpuRuntime>& runtime,
                                at::Device device) {
    const auto transform =
        reinterpret_cast<TransformEntryPoint>(runtime->function(transform_entry_point));
    const auto mix = reinterpret_cast<MixEntryPoint>(runtime->function(mix_entry_point));
    return {.device = device,
            .transform =
                [=](std::span<const StageLaunch> stages, void* stream) {
                    check_cuda(*runtime,
                               transform(stages.data(), static_cast<int>(stages.size()), stream),
                               "the kernels of a transform");
                },
            .mix =
                [=](const MixLaunch& launch, void* stream) {
                    check_cuda(*runtime, mix(&launch, stream), "the kernel that mixes samples");
                },
            .page_lock = gpu_page_lock(runtime)};
}

Gpu::Gpu(const Communicator& ranks, const TrainSettings& settings)
    : bootstrap_(make_bootstrap(ranks)),
      timeout_s_(settings.comm_timeout_s > 0 ? settings.comm_timeout_s
                                             : std::numeric_limits<double>::infinity()),
      rdma_ports_(settings.rdma_ports) {
    if (settings.shares_gpus && settings.device == DeviceKind::cuda) {
        let_nccl_share_gpus(ranks);
        rdma_ports_.clear();  // that they are unused is meant
    }
    agree(ranks, [&] {
        check(!settings.gpu.pci.empty(), no_gpu_planned);
        load_torch_cuda();  // with an NCCL, which is then the process's
        runtime_ = GpuRuntime::open();
    });
    selected_ = claim_gpu(runtime_->cuda(), settings.gpu, *bootstrap_, claim_deadline_s);
    agree(ranks, [&] {
        use_torch_device(device());
        input_kernels_ = make_input_kernels(runtime_, device());
    });
}

at::Device Gpu::device() const {
    return {at::kCUDA, static_cast<c10::DeviceIndex>(selected_.device)};
}

std::string Gpu::text() const {
    const std::string driver = nvidia_driver_version();
    return fmt::format("{} ({}), {}{}",
                       selected_.name,
                       selected_.pci,
                       torch_cuda_text(),
                       driver.empty() ? "" : ", driver " + driver);
}

std::unique_ptr<Exchange> Gpu::make_exchange(const FlatLayout& layout,
                                             const TreePlan& plan,
                                             const std::filesystem::path& log) {
    report_ = plan_nccl_report(Environment(), log);
    apply(report_);
    NcclOptions options;
    options.device = selected_.device;
    options.report = report_.file.string();
    // The watchdog, which names who is waited for, speaks first.
    options.collective_deadline_s = timeout_s_ + watchdog_speaks_s;
    communicator_.emplace(runtime_, *bootstrap_, options);
    auto exchange = make_nccl_exchange(*communicator_, layout, plan, torch_stream);
    loops_ = make_gpu_loops(runtime_, *exchange, device(), torch_stream);
    return exchange;
}

NetworkSummary Gpu::network(const Communicator& ranks) const {
    const RankNetwork own = rank_network(report_, rdma_ports_, Environment());
    if (const auto links = links_text(own.report, ranks.rank()); !links.empty())
        here(Level::info, "NCCL sends to {}", links);
    std::vector<RankNetwork> all;
    for (const std::string& text : ranks.gather(packed(own)))
        all.push_back(unpacked_rank_network(text));
    return summarize_network(all);
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
