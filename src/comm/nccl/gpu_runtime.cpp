// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_runtime.hpp"

#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"
#include "nccl/nccl_inside.hpp"
#include "nccl/rank_facts.hpp"

#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string quoted(const std::vector<std::string>& names) {
    return fmt::format("'{}'", fmt::join(names, "', '"));
}

bool is_instance(const PlannedGpu& planned) {
    return planned.uuid.starts_with("MIG-");
}

/// "1b2c..." of "GPU-1b2c..." and of "MIG-1b2c...".
std::string digits_of(const std::string& uuid) {
    return uuid.substr(uuid.find('-') + 1);
}

std::string text_of(const PlannedGpu& planned) {
    return planned.uuid.empty() ? planned.pci : fmt::format("{} ({})", planned.pci, planned.uuid);
}

std::string visible_text(const CudaApi& cuda) {
    int count = 0;
    if (cuda.device_count(&count) != CudaApi::success || count == 0) return "no GPU at all";
    std::string text;
    for (int device = 0; device < count; ++device) {
        CudaDeviceFacts facts;
        if (cuda.device_facts(device, &facts) != CudaApi::success) continue;
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", facts.pci, facts.uuid);
    }
    return fmt::format("{} GPU(s): {}", count, text);
}

Error not_shown(const CudaApi& cuda, const PlannedGpu& planned, CudaApi::Status status) {
    const auto list = Environment().text("CUDA_VISIBLE_DEVICES");
    return Error(
        "E689",
        fmt::format(
            "CUDA does not show GPU {} to this rank, but {}", text_of(planned), visible_text(cuda)),
        fmt::format("{}; CUDA_VISIBLE_DEVICES is {}",
                    cuda.error_text(status),
                    list ? fmt::format("'{}'", *list) : "not set"),
        "let every rank see all GPUs of its node: srun --gpus-per-node=N, not --gpus-per-task; "
        "mpirun without -x CUDA_VISIBLE_DEVICES; unset CUDA_VISIBLE_DEVICES");
}

int device_of(const CudaApi& cuda, const PlannedGpu& planned) {
    if (is_instance(planned)) {
        ::setenv("CUDA_VISIBLE_DEVICES", planned.uuid.c_str(), 1);
        return 0;
    }
    int device = -1;
    const auto status = cuda.device_by_pci(planned.pci.c_str(), &device);
    if (status != CudaApi::success) throw not_shown(cuda, planned, status);
    return device;
}

/// An instance is told apart by being the only device: its UUID may be its GPU's for older CUDA.
bool is_planned(const CudaApi& cuda, const PlannedGpu& planned, const CudaDeviceFacts& found) {
    if (found.pci != planned.pci) return false;
    if (planned.uuid.empty() || digits_of(found.uuid) == digits_of(planned.uuid)) return true;
    int count = 0;
    return is_instance(planned) && cuda.device_count(&count) == CudaApi::success && count == 1;
}

NcclRankFacts claim_of(const SelectedGpu& gpu) {
    return {.host = host_name(),
            .host_id = nccl_host_id(Environment()),
            .gpu_uuid = gpu.uuid,
            .gpu_pci = gpu.pci};
}

}  // namespace

/// Declared before the tables, so that their code is there until they are gone.
struct GpuRuntime::Libraries {
    SharedLibrary cuda, nccl;
};

std::shared_ptr<GpuRuntime> GpuRuntime::open(const std::string& nccl_path) {
    CudaLibrary cuda = load_cuda();
    NcclLibrary nccl = load_nccl(nccl_path);
    auto runtime = std::make_shared<GpuRuntime>(
        std::make_unique<NcclApi>(nccl.api), std::make_unique<CudaApi>(cuda.api), nccl.text());
    runtime->libraries_ =
        std::make_unique<Libraries>(Libraries{std::move(cuda.library), std::move(nccl.library)});
    once(Level::info, "GPU: {}; {}", nccl.text(), cuda.path);
    return runtime;
}

GpuRuntime::GpuRuntime(std::unique_ptr<const NcclApi> nccl,
                       std::unique_ptr<const CudaApi> cuda,
                       std::string nccl_text)
    : nccl_(std::move(nccl)), cuda_(std::move(cuda)), nccl_text_(std::move(nccl_text)) {}

GpuRuntime::~GpuRuntime() = default;

void* GpuRuntime::function(const char* name) const {
    expect(libraries_ != nullptr, "the libraries are loaded");
    return function_in(libraries_->cuda, name);
}

void GpuRuntime::add(const std::shared_ptr<NcclHandle>& handle) {
    const std::lock_guard lock(mutex_);
    std::erase_if(handles_, [](const auto& known) { return known.expired(); });
    handles_.push_back(handle);
}

AbortOutcome GpuRuntime::abort_all(double limit_s) {
    if (is_aborting_.exchange(true)) return {};
    const double begin = now_s();
    std::vector<std::shared_ptr<NcclHandle>> handles;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& known : handles_)
            if (auto handle = known.lock()) handles.push_back(std::move(handle));
    }
    std::vector<std::future<void>> ends;
    for (const auto& handle : handles) {
        // A thread that hangs keeps what it uses.
        std::packaged_task<void()> task(
            [runtime = shared_from_this(), handle] { handle->abort(); });
        ends.push_back(task.get_future());
        std::thread(std::move(task)).detach();
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    AbortOutcome outcome;
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const bool has_ended = ends[i].wait_until(limit) == std::future_status::ready;
        (has_ended ? outcome.aborted : outcome.hung).push_back(handles[i]->name());
    }
    is_wedged_ = !outcome.hung.empty();
    outcome.seconds = now_s() - begin;
    return outcome;
}

std::string AbortOutcome::text() const {
    std::string text;
    if (!aborted.empty()) text = fmt::format("aborted {}", quoted(aborted));
    if (!hung.empty())
        text += fmt::format("{}{} hang in their abort", text.empty() ? "" : "; ", quoted(hung));
    if (text.empty()) return "another thread aborts, or there was nothing to abort";
    return fmt::format("{} within {}", text, duration_text(seconds));
}

void check_cuda(const GpuRuntime& runtime, int status, const char* call) {
    check_cuda(runtime.cuda(), status, call);
}

PageLock gpu_page_lock(std::shared_ptr<const GpuRuntime> runtime) {
    return {.lock =
                [runtime](std::span<std::byte> pages) {
                    const CudaApi& cuda = runtime->cuda();
                    check_cuda(
                        cuda, cuda.lock_pages(pages.data(), pages.size()), "cudaHostRegister");
                },
            .unlock =
                [runtime](std::span<std::byte> pages) {
                    // After an abort that hangs this could wait for ever; the process ends soon.
                    if (!runtime->is_wedged()) runtime->cuda().unlock_pages(pages.data());
                }};
}

CudaStream make_stream(const std::shared_ptr<GpuRuntime>& runtime) {
    GpuStream stream = nullptr;
    check_cuda(
        runtime->cuda(), runtime->cuda().create_stream(&stream), "cudaStreamCreateWithPriority");
    return {runtime, stream};
}

CudaEvent make_event(const std::shared_ptr<GpuRuntime>& runtime) {
    CudaApi::Event event = nullptr;
    check_cuda(runtime->cuda(), runtime->cuda().create_event(&event), "cudaEventCreateWithFlags");
    return {runtime, event};
}

CudaMemory make_memory(const std::shared_ptr<GpuRuntime>& runtime, std::size_t bytes) {
    void* memory = nullptr;
    check_cuda(runtime->cuda(), runtime->cuda().allocate(&memory, bytes), "cudaMalloc");
    return {runtime, memory};
}

void copy_async(
    const GpuRuntime& runtime, void* to, const void* from, std::size_t bytes, GpuStream stream) {
    check_cuda(runtime, runtime.cuda().copy_async(to, from, bytes, stream), "cudaMemcpyAsync");
}

void zero_async(const GpuRuntime& runtime, void* memory, std::size_t bytes, GpuStream stream) {
    check_cuda(runtime, runtime.cuda().zero_async(memory, bytes, stream), "cudaMemsetAsync");
}

void record(const GpuRuntime& runtime, const CudaEvent& event, GpuStream stream) {
    const CudaApi& cuda = runtime.cuda();
    check_cuda(cuda, cuda.record_event(event.value(), stream), "cudaEventRecord");
}

void let_wait(const GpuRuntime& runtime, GpuStream stream, const CudaEvent& event) {
    const CudaApi& cuda = runtime.cuda();
    check_cuda(cuda, cuda.stream_wait_event(stream, event.value()), "cudaStreamWaitEvent");
}

void let_wait(const std::shared_ptr<GpuRuntime>& runtime, GpuStream later, GpuStream earlier) {
    // CUDA keeps a destroyed event until the work that refers to it is done.
    const CudaEvent event = make_event(runtime);
    record(*runtime, event, earlier);
    let_wait(*runtime, later, event);
}

SelectedGpu select_gpu(const CudaApi& cuda, const PlannedGpu& planned) {
    const int wanted = device_of(cuda, planned);
    const auto status = cuda.set_device(wanted);
    if (status != CudaApi::success) throw not_shown(cuda, planned, status);
    int device = -1;
    check_cuda(cuda, cuda.get_device(&device), "cudaGetDevice");
    CudaDeviceFacts found;
    check_cuda(cuda, cuda.device_facts(device, &found), "cudaGetDeviceProperties");
    check(device == wanted && is_planned(cuda, planned, found),
          "E690",
          fmt::format(
              "CUDA selected GPU {} ({}) instead of {}", found.pci, found.uuid, text_of(planned)),
          "a library selected a device before, or the plan is of another node or boot",
          "make a new plan on these nodes: lockstep map --save-topology FILE");
    return {device,
            found.pci,
            is_instance(planned) ? planned.uuid : found.uuid,
            found.name,
            found.capability};
}

SelectedGpu claim_gpu(const CudaApi& cuda,
                      const PlannedGpu& planned,
                      Bootstrap& bootstrap,
                      double deadline_s) {
    SelectedGpu mine;
    const auto texts = gather_or_fail(
        bootstrap,
        [&] {
            mine = select_gpu(cuda, planned);
            return serialize(claim_of(mine));
        },
        deadline_s,
        "the selection of GPUs");
    std::vector<NcclRankFacts> claims;
    for (const std::string& text : texts)
        claims.push_back(deserialize<NcclRankFacts>(text, "another rank's facts"));
    check_gpus_apart(claims);
    return mine;
}

std::map<std::string, std::string> nccl_variables_of_sharing(int rank, SharingReach reach) {
    std::map<std::string, std::string> variables = {
        {"NCCL_HOSTID", fmt::format("{}-rank{}", host_name(), rank)},
        {"NCCL_IB_DISABLE", "1"},
        {"NCCL_P2P_DISABLE", "1"},
        {"NCCL_SHM_DISABLE", "1"},
        // A GPU's ranks take turns: a kernel that waits for another's must leave it room.
        {"NCCL_MAX_CTAS", "2"}};
    if (reach == SharingReach::one_node) variables["NCCL_SOCKET_IFNAME"] = "lo";
    return variables;
}

SelectedGpu try_gpu(const PlannedGpu& planned, Bootstrap& bootstrap, double deadline_s) {
    CudaLibrary cuda;
    gather_or_fail(
        bootstrap,
        [&] {
            cuda = load_cuda();
            return std::string();
        },
        deadline_s,
        "the loading of CUDA");
    return claim_gpu(cuda.api, planned, bootstrap, deadline_s);
}

std::string describe_gpus(const std::string& nccl_path) {
    if (!gpu_driver_fault().empty()) return "none (no driver)";
    try {
        const CudaLibrary cuda = load_cuda();
        int count = 0;
        check_cuda(cuda.api, cuda.api.device_count(&count), "cudaGetDeviceCount");
        CudaDeviceFacts first;
        check_cuda(cuda.api, cuda.api.device_facts(0, &first), "cudaGetDeviceProperties");
        return fmt::format("{} x {}, {}", count, first.name, load_nccl(nccl_path).text());
    } catch (const Error& error) {
        return fmt::format("cannot be used: {}: {}", error.code(), error.what());
    }
}

}  // namespace lockstep
