// SPDX-License-Identifier: Apache-2.0
// This file is not linked with CUDA: LibTorch's own registries know CUDA once its library is
// loaded, and devices are accessed through c10's interfaces, which any device has.
#include "replica/gpu.hpp"

#include "lockstep/cluster/topology.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/types.h>

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

// FailedAllocations asks how many there were, and this allocator does not count.
void check_allocator() {
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
        const std::string text = Environment().text(name).value_or("");
        check(text.find("cudaMallocAsync") == text.npos,
              "E709",
              fmt::format("{} is '{}'", name, text),
              "cudaMallocAsync does not say that memory ended, and kernels change there",
              "unset it, or name another backend there");
    }
}

constexpr int least_capability_of_tf32 = 8;

// Collective. Decides the precision if it is open. Factors of products and convolutions are rounded
// to TF32, which has 10 bits of fp32's 23 behind the point. Sums are fp32.
void settle_tf32(const Communicator& ranks, const Gpu* gpu, TrainSettings& settings) {
    const std::string obstacle =
        gpu == nullptr ? "the ranks compute on CPUs, and TF32 is of GPUs" : gpu->tf32_obstacle();
    if (settings.precision == Precision::automatic) {
        std::int64_t lacks_it = obstacle.empty() ? 0 : 1;
        ranks.all_reduce_max({&lacks_it, 1});
        settings.precision = lacks_it == 0 ? Precision::tf32 : Precision::fp32;
    }
    if (settings.precision != Precision::tf32) return;
    agree(ranks, [&] {
        check(obstacle.empty(),
              "E107",
              "--precision tf32 has no effect here",
              obstacle,
              "use --precision fp32 in a new run; one that has tf32 needs GPUs that have it");
    });
    at::globalContext().setAllowTF32CuDNN(true);
    at::globalContext().setAllowTF32CuBLAS(true);
}

constexpr std::int64_t room_floats = 1 << 22;

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
          update_(function<UpdateEntryPoint>(update_entry_point)),
          squares_(function<exact::SquaresEntryPoint>(exact::squares_entry_point)),
          nonfinite_(function<exact::SquaresEntryPoint>(exact::nonfinite_entry_point)),
          decide_(function<DecideEntryPoint>(decide_entry_point)),
          own_rates_(function<OwnRatesEntryPoint>(own_rates_entry_point)),
          room_(floats(room_floats)),
          decision_(floats(sizeof(UpdateDecision) / sizeof(float))) {}

    void run(std::span<const UpdateLaunch> launches) override {
        UpdateBatch batch;
        for (const UpdateLaunch& launch : launches) {
            if (launch.count > 0) batch.add(launch);
            const bool is_last = &launch == &launches.back();
            if (!batch.is_full() && !(is_last && batch.count > 0)) continue;
            check_cuda(*runtime_, update_(&batch, stream_), "the kernel of an update");
            batch.count = 0;
        }
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

    void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) override {
        const exact::SquaresLaunch launch{
            .values = values, .count = static_cast<std::int64_t>(count), .words = sum};
        check_cuda(*runtime_, nonfinite_(&launch, stream_), "the kernel that looks for infinities");
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
    /// Returns memory whose size the first step fixes.
    float* reserve(at::Tensor& tensor, std::size_t count) const {
        const auto wanted = static_cast<std::int64_t>(count);
        if (!tensor.defined() || tensor.numel() < wanted) tensor = floats(wanted);
        return tensor.data_ptr<float>();
    }

    const std::shared_ptr<const GpuRuntime> runtime_;
    GpuExchange& exchange_;
    const at::Device device_;
    const GpuStream stream_;
    const UpdateEntryPoint update_;
    const exact::SquaresEntryPoint squares_, nonfinite_;
    const DecideEntryPoint decide_;
    const OwnRatesEntryPoint own_rates_;
    at::Tensor room_, decision_, sums_, rates_;
};

constexpr const char* usual_name = "libtorch_cuda.so";

Error cannot_use(const std::string& what, const std::string& why) {
    return {"E694",
            what,
            why,
            "scripts/setup gpu installs what it needs; LD_LIBRARY_PATH names folders of a module's "
            "libraries; --device cpu trains without"};
}

std::string loader_reason() {
    const char* const reason = ::dlerror();
    return reason == nullptr ? "the loader gives no reason" : reason;
}

// The choice of kernels depends on shapes alone, and none rounds to fewer bits.
void be_deterministic() {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(true, false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    context.setAllowTF32CuDNN(false);
    context.setAllowTF32CuBLAS(false);
}

// Before any code asks LibTorch whether there is CUDA. Calls no CUDA function.
void load_torch_cuda() {
    // Before the first call of cuBLAS: docs.nvidia.com/cuda/cublas, "Results reproducibility".
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
    const std::string name = Environment().text("LOCKSTEP_TORCH_CUDA_LIB").value_or(usual_name);
    // For good: its kernels are registered, and other libraries find its symbols.
    if (::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) == nullptr)
        throw cannot_use("LibTorch's CUDA part cannot be loaded", loader_reason());
    be_deterministic();
}

// Call after the GPU was selected: this thread's work goes there.
void use_torch_device(c10::Device device) {
    const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
    check(cuda.hasCUDA() && cuda.deviceCount() > device.index(), [] {
        return cannot_use("LibTorch's CUDA part finds no GPU",
                          "it is of another build, or counts fewer than CUDA does");
    });
    try {
        at::globalContext().lazyInitDevice(device.type());
        c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    } catch (const c10::Error& error) {
        throw cannot_use("LibTorch cannot use GPU " + std::to_string(device.index()),
                         error.what_without_backtrace());
    }
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

std::unique_ptr<UpdateLoops> make_gpu_loops(const std::shared_ptr<const GpuRuntime>& runtime,
                                            GpuExchange& exchange,
                                            c10::Device device,
                                            GpuStream stream) {
    return std::make_unique<GpuLoops>(runtime, exchange, device, stream);
}

Gpu::Gpu(const Communicator& ranks, const TrainSettings& settings)
    : bootstrap_(make_bootstrap(ranks)),
      timeout_s_(settings.comm_timeout_s > 0 ? settings.comm_timeout_s
                                             : std::numeric_limits<double>::infinity()),
      rdma_ports_(settings.rdma_ports) {
    if (settings.shares_gpus && settings.device == DeviceKind::cuda) {
        let_nccl_share_gpus(ranks);
        rdma_ports_.clear();  // they are unused on purpose
    }
    agree(ranks, [&] {
        check(!settings.gpu.pci.empty(), no_gpu_planned);
        check_allocator();
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

std::string Gpu::tf32_obstacle() const {
    return selected_.capability >= least_capability_of_tf32 ? ""
                                                            : selected_.name + " does not have it";
}

std::string Gpu::text() const {
    const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
    const long cuda = hooks.versionCUDART(), cudnn = hooks.versionRuntimeCuDNN();
    const std::string driver = nvidia_driver_version();
    return fmt::format("{} ({}), CUDA {}.{}, cuDNN {}.{}.{}{}",
                       selected_.name,
                       selected_.pci,
                       cuda / 1000,
                       cuda % 1000 / 10,
                       cudnn / 10000,
                       cudnn / 100 % 100,
                       cudnn % 100,
                       driver.empty() ? "" : ", driver " + driver);
}

std::unique_ptr<Exchange> Gpu::make_exchange(const FlatLayout& layout,
                                             const TreePlan& plan,
                                             const fs::path& log) {
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
    for (const std::string& text : ranks.gather(serialize(own)))
        all.push_back(deserialize<RankNetwork>(text, "another rank's network"));
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
    settle_tf32(ranks, gpu.get(), settings);
    return gpu;
}

MakeDeviceGraph load_device_graphs(const std::string& path, std::string& why_not) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, device_graph_entry_point);
    if (entry == nullptr) {
        why_not = loader_reason();
        return {};
    }
    return [make = reinterpret_cast<DeviceGraphEntryPoint>(entry)] {
        return std::unique_ptr<DeviceGraph>(make());
    };
}

}  // namespace lockstep
