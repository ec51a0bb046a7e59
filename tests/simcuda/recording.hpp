// SPDX-License-Identifier: Apache-2.0
// What LibTorch asks of a stream that records a CUDA graph: kept, to be done at each replay.
//
// A GPU does nothing meanwhile. Here operators run once, for nobody else knows the shapes of what
// they give; what they write to memory from before the recording is put back.
#pragma once

#include "simcuda/machine.hpp"

#include <functional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace simcuda {

class Recording {
  public:
    using Operator = void (*)(const c10::OperatorHandle&, torch::jit::Stack*);

    /// Runs `run` on `stack` and keeps it.
    void add(const c10::OperatorHandle& op, torch::jit::Stack* stack, Operator run);

    /// The same of work that writes `to`.
    void add(const at::Tensor& to, std::function<void()> work);

    /// Throws as CUDA does, and nothing is recorded in the end.
    [[noreturn]] void refuse();

    /// Of the recording's own: nothing of it was there before.
    void own(void* allocated) { own_.insert(allocated); }

    bool is_spoilt() const { return is_spoilt_; }
    const std::vector<std::function<void()>>& tasks() const { return tasks_; }

  private:
    std::vector<std::function<void()>> tasks_;
    std::set<void*> own_;
    bool is_spoilt_ = false;
};

/// The same bytes; autograd's graph shall not live as long as a recording.
at::Tensor without_graph(const at::Tensor& tensor);

/// Of what is asked of `stream` from here on; both outlive it. One recording at a time.
void begin_recording(Stream& stream, Recording& recording);
void end_recording(Stream& stream);

/// Throws where one of both is part of a recording and the other is not: such streams may not wait
/// for each other.
void refuse_unless_inside(const Event& event, Stream& stream);

/// That of the calling thread's current stream; nullptr if there is none, and within an operator
/// that is being recorded.
Recording* current_recording();

/// The same within operators.
Recording* recording_around();

/// Throws where the calling thread's current stream records: the host may not wait for it.
void refuse_while_recording();

}  // namespace simcuda
