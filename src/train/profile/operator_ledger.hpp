// SPDX-License-Identifier: Apache-2.0
// The costs of LibTorch's operators, measured by its own hooks: RecordFunction for calls, the
// reports of the allocator for memory.
//
//   aten::linear            frames: a call's self time is its time without its callees'
//     aten::t
//     aten::addmm           has a formula: what it calls is its own time, so that FLOPs and the
//       ...                 time that they took stand in one row
//
// An outermost operator of forward belongs to the module whose scope it runs in: programs name
// them by RECORD_USER_SCOPE, and so can a class. Without one, it belongs to the layer whose
// parameter it gets, or else to the layer of the previous operator. A node of backward has the
// sequence number of the operator that made it, and belongs to the same layer. Memory belongs to
// the layer whose operator allocated it; what is still allocated when forward ends is kept for
// backward. A view shares its memory with its parameter, so addresses show whose parameter an
// argument is.
//
// Tested: train/profile/profile_test.cpp.
#pragma once

#include "lockstep/train/profile.hpp"

#include "model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// Arguments in the order of the operator's schema.
using OperatorInputs = c10::ArrayRef<const c10::IValue>;

/// Sums the measurements of the steps of one model. One thread, which is also backward's if all is
/// computed on the processor.
class OperatorLedger : public c10::MemoryReportingInfoBase {
  public:
    explicit OperatorLedger(const Model& model);

    void begin_step();
    void begin_backward();

    void begin_call(const at::RecordFunction& call);
    void end_call(const at::RecordFunction& call);

    void reportMemoryUsage(
        void* place, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override;
    bool memoryProfilingEnabled() const override { return true; }

    /// Returns means over `steps` steps, the slowest first.
    std::vector<OperatorCost> operators(std::int64_t steps) const;
    std::vector<LayerCost> layers(std::int64_t steps) const;
    std::uint64_t peak_bytes() const { return peak_bytes_; }

  private:
    struct Call {
        std::string name;
        double begin_s = 0, inner_s = 0;
        std::optional<std::uint64_t> flops;
        std::optional<std::size_t> layer;  ///< layer of the parameter that it got
    };
    struct Tally {
        std::uint64_t calls = 0, flops = 0;
        bool has_flops = false;
        double self_s = 0;
    };
    struct Block {
        std::uint64_t bytes = 0;
        std::optional<std::size_t> layer;
    };

    struct Layer {
        LayerCost cost;
        std::optional<std::size_t> first_use;  ///< its place among those that were used
    };

    std::size_t layer_named(const std::string& name);
    void begin_node(const at::RecordFunction& call);
    void begin_outermost(const at::RecordFunction& call, Call& begun);
    std::optional<std::size_t> layer_of(const at::Tensor& tensor) const;
    std::optional<std::size_t> layer_of(OperatorInputs inputs) const;
    void note_output(std::size_t layer, const std::vector<c10::IValue>& outputs);

    std::vector<Layer> layers_;
    std::map<std::string, std::size_t> places_;  ///< of layers, by their names
    std::map<const void*, std::size_t> owners_;  ///< layers, by the addresses of their parameters
    std::vector<std::size_t> scopes_;            ///< layers of the scopes that are open
    std::size_t used_ = 0;                       ///< layers that were used
    /// Layers of a step's operators by autograd's sequence number when each began.
    std::vector<std::pair<std::uint64_t, std::size_t>> sequence_;
    StepPass pass_ = StepPass::forward;
    std::size_t layer_ = 0;
    std::vector<Call> calls_;    ///< outermost first
    std::size_t swallowed_ = 0;  ///< calls below the last one, which has a formula
    std::map<std::pair<StepPass, std::string>, Tally> tallies_;
    std::map<const void*, Block> blocks_;
    std::uint64_t live_bytes_ = 0, peak_bytes_ = 0;
};

/// During its lifetime, this thread's operators are measured.
class OperatorWatch {
  public:
    explicit OperatorWatch(std::shared_ptr<OperatorLedger> ledger);
    ~OperatorWatch();
    OperatorWatch& operator=(OperatorWatch&&) = delete;

  private:
    c10::DebugInfoGuard info_;
    at::CallbackHandle callback_;
};

}  // namespace lockstep
