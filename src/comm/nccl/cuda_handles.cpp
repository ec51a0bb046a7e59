// SPDX-License-Identifier: Apache-2.0
#include "nccl/cuda_handles.hpp"

namespace lockstep {

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
