// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/prune.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "loop/trained_run.hpp"
#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "model/wrapped_model.hpp"
#include "prune/channel_chain.hpp"
#include "schedule/blank_step.hpp"

#include <vector>

#include <ATen/core/grad_mode.h>

namespace lockstep {
namespace {

constexpr std::int64_t measured_rows = 128;
constexpr int warm_up_calls = 3, measured_calls = 15;

TrainedRun open_run(const PruneSettings& settings) {
    const RunSettings run = read_run_settings(settings.run);
    check_prunable(run.settings.model.name);
    return open_trained_run(
        {.run = settings.run, .weights = settings.weights, .train_data = settings.train_data},
        Communicator());
}

std::vector<std::byte> values_of(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.contiguous(at::MemoryFormat::Contiguous);
    const auto* bytes = static_cast<const std::byte*>(plain.const_data_ptr());
    return {bytes, bytes + plain.nbytes()};
}

void write(NewFile& file, const WeightMap& weights) {
    std::vector<ExportedTensor> tensors;
    for (const auto& [name, tensor] : weights)
        tensors.push_back({.name = name,
                           .shape = tensor.sizes().vec(),
                           .values = [&values = tensor] { return values_of(values); }});
    write_safetensors(file, tensors);
    file.finish();
}

double seconds_of(Model& model, const NamedTensors& inputs) {
    const double begin_s = now_s();
    model.forward(inputs);
    return now_s() - begin_s;
}

// They take turns, so that both meet the machine in the same state.
void measure(Model& before, Model& after, const NamedTensors& inputs, PruneResult& result) {
    const at::NoGradGuard no_gradients;
    before.set_mode(ModelMode::evaluate);
    after.set_mode(ModelMode::evaluate);
    std::vector<double> before_s, after_s;
    for (int i = -warm_up_calls; i < measured_calls; ++i) {
        const double whole_s = seconds_of(before, inputs), less_s = seconds_of(after, inputs);
        if (i < 0) continue;
        before_s.push_back(whole_s);
        after_s.push_back(less_s);
    }
    result.before.forward_s = median_of(before_s);
    result.after.forward_s = median_of(after_s);
}

}  // namespace

PruneResult prune_run(const PruneSettings& settings) {
    NewFile file(settings.output);
    const TrainedRun trained = open_run(settings);
    ModelSettings model = trained.run.settings.model;
    WeightMap weights = weight_map(*trained.model);
    PruneResult result{.model = model.name,
                       .batch = measured_rows,
                       .before = {.channels = channels_in(model.name, weights),
                                  .parameters = element_count(trained.model->parameters())}};
    prune_channels(model.name, settings.keep, weights);
    write(file, weights);
    model.channels = channels_in(model.name, weights);
    const auto pruned =
        with_precision(open_model(model, trained.shape, 1), trained.run.settings.precision);
    load_weights(*pruned, WeightsFile(settings.output), "", WeightsFor::training);
    result.after = {.channels = model.channels, .parameters = element_count(pruned->parameters())};
    measure(*trained.model, *pruned, blank_inputs(trained.shape, measured_rows), result);
    return result;
}

}  // namespace lockstep
