// SPDX-License-Identifier: Apache-2.0
// A rank's GPU: what a replica in its memory is made of.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/train/settings.hpp"

#include "replica/update_loops.hpp"

#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Outlives all that is made of it.
class Gpu {
  public:
    /// Collective. Each rank takes the GPU that the placement gives it, and all compare. Errors, on
    /// all ranks: E670 no driver, no GPU, or no library of ours, E671 no NCCL, E673 two ranks on
    /// one GPU, E689, E690 not the one that was planned, E694 LibTorch cannot use it.
    Gpu(const Communicator& ranks, const TrainSettings& settings);

    at::Device device() const;

    /// "NVIDIA H100 (0000:3b:00.0)"
    std::string text() const;

    /// Collective, once. Sums between the ranks' GPUs. Errors: those of NcclCommunicator and
    /// make_nccl_exchange().
    std::unique_ptr<Exchange> make_exchange(const FlatLayout& layout, const TreePlan& plan);

    /// After make_exchange(), whose result they are for and which outlives them.
    UpdateLoops& make_loops(Exchange& exchange);

  private:
    std::unique_ptr<Bootstrap> bootstrap_;
    double timeout_s_;
    std::shared_ptr<GpuRuntime> runtime_;
    SelectedGpu selected_;
    std::optional<NcclCommunicator> communicator_;
    std::unique_ptr<UpdateLoops> loops_;
};

/// Collective. What `settings` leave to the machine: whether ranks compute on GPUs. Nothing where
/// they do not; `settings.device` says which from then on. Errors: those of Gpu, where GPUs were
/// asked for.
std::unique_ptr<Gpu> settle_device(const Communicator& ranks, TrainSettings& settings);

}  // namespace lockstep
