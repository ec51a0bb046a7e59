// SPDX-License-Identifier: Apache-2.0
// at::cuda::CUDAGraph, by the names that liblockstep_cuda_graph.so looks for.
#include "simcuda/recording.hpp"
#include "simcuda/torch_device.hpp"
#include "simcuda/torch_generator.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/util/Exception.h>

namespace simcuda {
namespace {

/// What at::cuda::CUDAGraph has no room for.
struct Graph {
    Recording recording;
    std::uint64_t seed = 0, offset = 0;  ///< of the generator before
};

class Graphs {
  public:
    Graph& of(const at::cuda::CUDAGraph* graph) {
        const std::lock_guard lock(mutex_);
        auto& found = graphs_[graph];
        if (!found) found = std::make_unique<Graph>();
        return *found;
    }
    void forget(const at::cuda::CUDAGraph* graph) {
        const std::lock_guard lock(mutex_);
        graphs_.erase(graph);
    }

  private:
    std::mutex mutex_;
    std::map<const at::cuda::CUDAGraph*, std::unique_ptr<Graph>> graphs_;
};

Graphs& graphs() {
    static Graphs& all = *new Graphs;
    return all;
}

SimGenerator& generator() {
    return *static_cast<SimGenerator*>(default_generator(-1).unsafeGetGeneratorImpl());
}

}  // namespace
}  // namespace simcuda

namespace at::cuda {

using simcuda::generator;
using simcuda::graphs;
using simcuda::stream_of;

CUDAGraph::CUDAGraph(bool keep_graph)
    : capture_stream_(c10::Stream(c10::Stream::DEFAULT, {c10::kCUDA, 0})),
      keep_graph_(keep_graph) {}

CUDAGraph::~CUDAGraph() {
    graphs().forget(this);
}

void CUDAGraph::capture_begin(MempoolId_t pool, cudaStreamCaptureMode) {
    static std::atomic<CaptureId_t> pools = 0;
    const auto device = static_cast<c10::DeviceIndex>(simcuda::Machine::device());
    const c10::Stream stream = simcuda::current_stream(device);
    TORCH_CHECK(stream.id() != 0, "CUDA graphs must be captured on a non-default stream.");
    simcuda::machine().synchronize(device);  // operators look at what they are given
    simcuda::Graph& graph = graphs().of(this);
    graph.seed = generator().current_seed();
    graph.offset = generator().get_offset();
    capture_stream_ = CUDAStream(stream);
    mempool_id_ = pool.first == 0 ? MempoolId_t{++pools, 0} : pool;
    generator().be_recorded(true);
    simcuda::begin_recording(stream_of(stream), graph.recording);
}

void CUDAGraph::capture_end() {
    simcuda::end_recording(stream_of(capture_stream_.unwrap()));
    const simcuda::Graph& graph = graphs().of(this);
    generator().set_current_seed(graph.seed);
    generator().set_offset(graph.offset);
    constexpr int invalidated = 901;  // cudaErrorStreamCaptureInvalidated
    if (graph.recording.is_spoilt())
        throw c10::AcceleratorError(
            {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
            invalidated,
            "CUDA error: operation failed due to a previous error during capture");
    generator().be_recorded(false);
    has_graph_exec_ = true;
}

MempoolId_t CUDAGraph::pool() {
    return mempool_id_;
}

void CUDAGraph::replay() {
    TORCH_CHECK(has_graph_exec_,
                "Called CUDAGraph::replay without a preceding successful capture.");
    for (const auto& task : graphs().of(this).recording.tasks()) task();
}

}  // namespace at::cuda
