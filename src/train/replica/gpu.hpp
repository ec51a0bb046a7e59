// SPDX-License-Identifier: Apache-2.0
// A rank's GPU, and the parts of a replica in its memory.
//
// LibTorch's CUDA part: a separate library, which only ranks that compute on GPUs load.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/nccl_network.hpp"
#include "lockstep/plan/settings.hpp"

#include "replica/device_graph.hpp"
#include "replica/optimizer.hpp"
#include "task/field_input.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep {

/// Makes kernels of loaded libraries. Errors: E670 if they lack one of the kernels.
InputKernels make_input_kernels(const std::shared_ptr<const GpuRuntime>& runtime,
                                at::Device device);

/// Makes optimizers' loops as kernels of liblockstep_cuda.so. They run on `stream`, which is
/// LibTorch's and the caller's of `exchange`; that adds sums over its ranks. The host waits for
/// none of it. `exchange` outlives all calls. Errors of all: E670 a library that lacks a kernel,
/// E681, and those of the exchange.
std::unique_ptr<UpdateLoops> make_gpu_loops(const std::shared_ptr<const GpuRuntime>& runtime,
                                            GpuExchange& exchange,
                                            c10::Device device,
                                            GpuStream stream);

/// Outlives all objects that are made of it.
class Gpu {
  public:
    /// Collective. Each rank takes the GPU that the placement gives it, and all compare. Errors, on
    /// all ranks: E670 no driver, no GPU, or no library of ours, E671 no NCCL, E673 two ranks on
    /// one GPU, E689, E690 not the planned one, E694 LibTorch cannot use it.
    Gpu(const Communicator& ranks, const TrainSettings& settings);

    at::Device device() const;

    /// Returns "NVIDIA H100 (0000:3b:00.0), CUDA 13.0, cuDNN 9.10.2, driver 550.54.15".
    std::string text() const;

    /// Returns why the GPU has no TF32, or nothing.
    std::string tf32_obstacle() const;

    /// Returns the kernels, which live as long as this does.
    const InputKernels& input_kernels() const { return input_kernels_; }

    /// Collective, once. Makes the sums between the ranks' GPUs. NCCL reports to `log`, a file of
    /// this rank, unless the user sends its report elsewhere. Errors: those of NcclCommunicator and
    /// make_nccl_exchange().
    std::unique_ptr<Exchange> make_exchange(const FlatLayout& layout,
                                            const TreePlan& plan,
                                            const fs::path& log);

    /// Collective, after a whole exchange, because NCCL connects ranks at their first message.
    /// Returns the summary on rank 0 of `ranks`; elsewhere nothing. Logs the ranks that this rank
    /// sends to, and the paths.
    NetworkSummary network(const Communicator& ranks) const;

    /// Returns the loops for the result of make_exchange(), after that call.
    UpdateLoops& loops() { return *loops_; }

  private:
    std::unique_ptr<Bootstrap> bootstrap_;
    double timeout_s_;
    std::vector<std::string> rdma_ports_;
    std::shared_ptr<GpuRuntime> runtime_;
    SelectedGpu selected_;
    InputKernels input_kernels_;
    NcclReportPlan report_;
    std::unique_ptr<UpdateLoops> loops_;  ///< NCCL may still add their sums after an abort
    std::optional<NcclCommunicator> communicator_;
};

/// Collective. Decides whether ranks compute on GPUs, and in which precision, if `settings` leave
/// it open; they say so then. Returns nothing for CPUs. Errors: those of Gpu, if GPUs were
/// requested; E107 tf32 was, and a rank lacks it.
std::unique_ptr<Gpu> settle_device(const Communicator& ranks, TrainSettings& settings);

/// Loads the library at `path`, after LibTorch's CUDA part. Returns nothing if it cannot be loaded,
/// with the reason.
MakeDeviceGraph load_device_graphs(const std::string& path, std::string& why_not);

/// Name of the library that comes with the program.
constexpr const char* device_graph_library = "liblockstep_cuda_graph.so";

}  // namespace lockstep
