// SPDX-License-Identifier: Apache-2.0
// What computes: a model, what it learns, and the replica and the step that train it.
#pragma once

#include "lockstep/comm/agree.hpp"

#include "loop/evaluate.hpp"
#include "loop/inputs.hpp"
#include "loop/run_contract.hpp"
#include "model/known_errors.hpp"
#include "replica/gpu.hpp"
#include "replica/optimizer.hpp"
#include "replica/replica.hpp"
#include "schedule/train_step.hpp"
#include "task/input.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

struct LoopParts;

/// Collective. agree() where LibTorch computes: what it throws has a name of ours.
template <class Work>
void agree_on_torch(const Communicator& ranks, Work&& work) {
    agree(ranks, [&] { with_known_errors(work); });
}

/// In the order in which its parts are made: each borrows from those before it.
struct Engine {
    at::Device device() const { return gpu ? gpu->device() : at::Device(at::kCPU); }

    /// Null: inputs are prepared on the host.
    const InputKernels* kernels() const { return gpu ? &gpu->input_kernels() : nullptr; }

    std::unique_ptr<Gpu> gpu;  ///< null: ranks compute on CPUs
    std::unique_ptr<Task> task;
    std::unique_ptr<InputReader> input;
    std::unique_ptr<Optimizer> optimizer;  ///< until the replica has it
    std::unique_ptr<Model> model;          ///< likewise
    std::vector<double> rate_factors;      ///< of its parameters
    std::vector<std::size_t> order;        ///< in which backward finishes its parameters
    std::unique_ptr<Replica> replica;      ///< from start_engine() on, as what follows
    std::unique_ptr<TrainStep> step;
    std::unique_ptr<Evaluator> evaluator;  ///< null without test data
};

/// Collective. The model, its task and its device, and with them the rest of `contract`: V and the
/// canary. Checks all that can be wrong with them before a run is made.
Engine make_engine(Start& start, Inputs& inputs, Contract& contract);

/// Collective, once the run is recorded. Replica, step and evaluator, with the initial weights.
void start_engine(const LoopParts& parts);

/// Collective, between steps. On made-up samples each rank tries which ways to compute its leaves
/// give the bits of computing them one by one, and what they cost. Errors: E103 for a way that was
/// asked for and does not.
void rehearse(const LoopParts& parts);

}  // namespace lockstep
