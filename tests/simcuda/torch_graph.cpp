// SPDX-License-Identifier: Apache-2.0
// at::cuda::CUDAGraph, by the names that liblockstep_cuda_graph.so looks for.
#include "simcuda/recording.hpp"
#include "simcuda/settings.hpp"
#include "simcuda/torch_device.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/util/Exception.h>

namespace simcuda {
namespace {

/// What at::cuda::CUDAGraph has no room for.
struct Graph {
    Recording recording;
    std::vector<std::shared_ptr<DrawState>> registered;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> before;  ///< their seeds and offsets
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

}  // namespace
}  // namespace simcuda

namespace at::cuda {

using simcuda::graphs;
using simcuda::stream_of;

CUDAGraph::CUDAGraph(bool keep_graph)
    : capture_stream_(c10::Stream(c10::Stream::DEFAULT, {c10::kCUDA, 0})),
      keep_graph_(keep_graph) {}

CUDAGraph::~CUDAGraph() {
    graphs().forget(this);
}

void CUDAGraph::register_generator_state(const at::Generator& generator) {
    graphs().of(this).registered.push_back(
        static_cast<simcuda::SimGenerator*>(generator.unsafeGetGeneratorImpl())->draw_state());
}

void CUDAGraph::capture_begin(MempoolId_t pool, cudaStreamCaptureMode) {
    static std::atomic<CaptureId_t> pools = 0;
    const auto device = static_cast<c10::DeviceIndex>(simcuda::Machine::device());
    const c10::Stream stream = simcuda::current_stream(device);
    TORCH_CHECK(stream.id() != 0, "CUDA graphs must be captured on a non-default stream.");
    simcuda::machine().synchronize(device);  // operators look at what they are given
    simcuda::Graph& graph = graphs().of(this);
    graph.registered.push_back(simcuda::default_draws().draw_state());
    for (const auto& state : graph.registered) {
        graph.before.emplace_back(state->seed, state->offset);
        state->is_in_recording = true;
    }
    capture_stream_ = CUDAStream(stream);
    mempool_id_ = pool.first == 0 ? MempoolId_t{++pools, 0} : pool;
    simcuda::begin_recording(stream_of(stream), graph.recording);
}

void CUDAGraph::capture_end() {
    simcuda::end_recording(stream_of(capture_stream_.unwrap()));
    const simcuda::Graph& graph = graphs().of(this);
    for (std::size_t i = 0; i < graph.registered.size(); ++i) {
        simcuda::DrawState& state = *graph.registered[i];
        std::tie(state.seed, state.offset) = graph.before[i];
        state.is_in_recording = false;
        state.is_spoilt = graph.recording.is_spoilt();
    }
    constexpr int invalidated = 901;  // cudaErrorStreamCaptureInvalidated
    if (graph.recording.is_spoilt())
        throw c10::AcceleratorError(
            {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
            invalidated,
            "CUDA error: operation failed due to a previous error during capture");
    has_graph_exec_ = true;
}

MempoolId_t CUDAGraph::pool() {
    return mempool_id_;
}

void CUDAGraph::replay() {
    TORCH_CHECK(has_graph_exec_,
                "Called CUDAGraph::replay without a preceding successful capture.");
    const simcuda::OneLaunch one;
    for (const auto& task : graphs().of(this).recording.tasks()) task();
}

}  // namespace at::cuda
