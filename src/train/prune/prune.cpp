// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/prune.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "loop/trained_run.hpp"
#include "model/load_weights.hpp"
#include "model/model.hpp"
#include "model/model_file.hpp"
#include "prune/channel_chain.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// A layer, the norm after it, and the layer that reads its outputs.
struct ChannelLink {
    std::string layer, norm, reader;
};

const std::vector<ChannelLink>& links_of(const std::string& model) {
    static const std::map<std::string, std::vector<ChannelLink>> chains = {
        {"mlp", {{"fc1", "", "fc2"}}},
        {"cnn", {{"conv1", "", "conv2"}, {"conv2", "", "fc1"}, {"fc1", "", "fc2"}}},
        {"cnn-bn", {{"conv1", "norm1", "conv2"}, {"conv2", "norm2", "fc1"}, {"fc1", "", "fc2"}}}};
    static const std::vector<ChannelLink> none;
    const auto found = chains.find(model);
    return found == chains.end() ? none : found->second;
}

// Why the channels of another model cannot go one layer at a time.
std::string obstacle(const std::string& model) {
    if (source_of(model) != ModelSource::registered) return "what its layers are is in its file";
    if (model.starts_with("resnet") || model.starts_with("efficientnet"))
        return "its shortcuts add up the channels of several layers, which would have to go "
               "together";
    if (model.starts_with("densenet"))
        return "each of its layers reads the channels of all before it";
    if (model == "unet") return "its shortcuts join the channels of both sides";
    if (model == "gpt" || model.starts_with("vit"))
        return "its layers all add to one stream, and heads share its width";
    return "what its layers are is not known";
}

// Returns the tensors of a layer or norm that have an entry for each of its channels.
std::vector<std::string> tensors_by_channel(const ChannelLink& link) {
    std::vector<std::string> names{link.layer + ".weight", link.layer + ".bias"};
    if (!link.norm.empty())
        for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
            names.push_back(link.norm + part);
    return names;
}

at::Tensor strongest(const at::Tensor& weight, double keep) {
    const at::Tensor norms = weight.abs().flatten(1).sum(1);
    const auto all = static_cast<double>(norms.size(0));
    const auto count = std::max<std::int64_t>(1, std::llround(std::ceil(keep * all - 1e-9)));
    const at::Tensor order = at::argsort(norms, /*stable=*/true, /*dim=*/0, /*descending=*/true);
    return std::get<0>(order.narrow(0, 0, count).sort());
}

// A reader of maps that were flattened has a row of inputs for each channel.
at::Tensor without_inputs(const at::Tensor& weight, const at::Tensor& kept, std::int64_t channels) {
    if (weight.size(1) == channels) return weight.index_select(1, kept);
    return weight.view({weight.size(0), channels, -1}).index_select(1, kept).flatten(1);
}

constexpr std::int64_t measured_rows = 128;
constexpr int warm_up_calls = 3, measured_calls = 15;

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

WeightMap weight_map(const Model& model) {
    WeightMap weights;
    for (const auto& [name, tensor] : model.parameters()) weights[name] = tensor.detach();
    for (const auto& [name, tensor] : model.buffers())
        if (tensor.is_floating_point()) weights[name] = tensor;
    return weights;
}

void check_prunable(const std::string& name) {
    check(!links_of(name).empty(),
          "E106",
          fmt::format("'{}' cannot be pruned", name),
          obstacle(name),
          "cnn, cnn-bn and mlp can");
}

std::string channels_in(const std::string& model, const WeightMap& weights) {
    std::vector<std::int64_t> channels;
    for (const ChannelLink& link : links_of(model))
        channels.push_back(weights.at(link.layer + ".weight").size(0));
    return fmt::format("{}", fmt::join(channels, ","));
}

void prune_channels(const std::string& model, double keep, WeightMap& weights) {
    for (const ChannelLink& link : links_of(model)) {
        const at::Tensor whole = weights.at(link.layer + ".weight"), kept = strongest(whole, keep);
        for (const std::string& name : tensors_by_channel(link))
            if (const auto found = weights.find(name); found != weights.end())
                found->second = found->second.index_select(0, kept);
        at::Tensor& reader = weights.at(link.reader + ".weight");
        reader = without_inputs(reader, kept, whole.size(0));
    }
}

PruneResult prune_run(const PruneSettings& settings) {
    NewFile file(settings.output);
    check_prunable(read_run_settings(settings.run).settings.model.name);
    const TrainedRun trained = open_trained_run(
        {.run = settings.run, .weights = settings.weights, .train_data = settings.train_data},
        Communicator());
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
