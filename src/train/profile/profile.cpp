// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/profile.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/numbers.hpp"

#include "model/known_errors.hpp"
#include "model/model_file.hpp"
#include "profile/operator_ledger.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"

#include <functional>

#include <ATen/Functions.h>

namespace lockstep {
namespace {

constexpr int warm_up_steps = 2;

struct StepTimes {
    double forward_s = 0, backward_s = 0;
};

void forget_gradients(const Model& model) {
    for (const auto& [name, parameter] : model.parameters()) parameter.mutable_grad().reset();
}

// Backward begins after `between`, with a gradient of ones.
StepTimes take_step(
    Model& model, const NamedTensors& inputs, const std::function<void()>& between = [] {}) {
    const double begin_s = now_s();
    const at::Tensor output = outputs_of(model, inputs).front().tensor;
    const double middle_s = now_s();
    between();
    const at::Tensor gradient = [&] {
        const at::RecordFunctionGuard unseen(false);
        return at::ones_like(output);
    }();
    const double resumed_s = now_s();
    in_model(model.author(), ModelPlace::backward, [&] { output.backward(gradient); });
    return {middle_s - begin_s, now_s() - resumed_s};
}

// Watched steps and others take turns, so that both meet the machine in the same state.
void take_steps(Model& model,
                const NamedTensors& inputs,
                std::int64_t steps,
                const std::shared_ptr<OperatorLedger>& ledger,
                ModelProfile& profile) {
    std::vector<double> forward_s, backward_s;
    for (std::int64_t i = 0; i < steps; ++i) {
        forget_gradients(model);
        const StepTimes times = take_step(model, inputs);
        forward_s.push_back(times.forward_s);
        backward_s.push_back(times.backward_s);
        forget_gradients(model);
        const OperatorWatch watch(ledger);
        ledger->begin_step();
        take_step(model, inputs, [&] { ledger->begin_backward(); });
    }
    profile.forward_s = median_of(forward_s);
    profile.backward_s = median_of(backward_s);
}

}  // namespace

ModelProfile profile_model(const ProfileSettings& settings) {
    TrainSettings arithmetic;
    arithmetic.threads = settings.threads;
    arithmetic.instruction_set = settings.instruction_set;
    settle_arithmetic(Communicator(), read_node_facts().instruction_set, arithmetic);
    const auto model = open_model(settings.model, settings.shape, 1);
    const NamedTensors inputs = blank_inputs(settings.shape, settings.batch);
    model->set_mode(ModelMode::train);
    ModelProfile profile{.output = outputs_of(*model, inputs).front().tensor.sizes().vec()};
    for (const NamedTensor& one : inputs) profile.inputs.push_back(one.tensor.sizes().vec());
    for (int i = 0; i < warm_up_steps; ++i) take_step(*model, inputs);
    const auto ledger = std::make_shared<OperatorLedger>(*model);
    take_steps(*model, inputs, settings.steps, ledger, profile);
    profile.operators = ledger->operators(settings.steps);
    profile.layers = ledger->layers(settings.steps);
    profile.peak_bytes = ledger->peak_bytes();
    return profile;
}

}  // namespace lockstep
