// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_runtime.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/cuda_handles.hpp"
#include "nccl/nccl_api.hpp"
#include "nccl/nccl_inside.hpp"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

std::string quoted(const std::vector<std::string>& names) {
    return fmt::format("'{}'", fmt::join(names, "', '"));
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

}  // namespace lockstep
