// SPDX-License-Identifier: Apache-2.0
#include "prune/channel_chain.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/plan/model_table.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// A layer, the norm after it, and the layer that reads its outputs.
struct ChannelLink {
    std::string layer, norm, reader;
};

struct ChannelChain {
    std::string_view model;
    std::vector<ChannelLink> links;
};

const std::vector<ChannelLink>& links_of(const std::string& model) {
    static const std::vector<ChannelChain> chains = {
        {"mlp", {{"fc1", "", "fc2"}}},
        {"cnn", {{"conv1", "", "conv2"}, {"conv2", "", "fc1"}, {"fc1", "", "fc2"}}},
        {"cnn-bn", {{"conv1", "norm1", "conv2"}, {"conv2", "norm2", "fc1"}, {"fc1", "", "fc2"}}}};
    static const std::vector<ChannelLink> none;
    const auto found = std::ranges::find(chains, model, &ChannelChain::model);
    return found == chains.end() ? none : found->links;
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

}  // namespace

WeightMap weight_map(const Model& model) {
    WeightMap weights;
    for (const auto& [name, tensor] : model.parameters()) weights[name] = tensor.detach();
    for (const auto& [name, tensor] : model.buffers())
        if (tensor.is_floating_point()) weights[name] = tensor;
    return weights;
}

void check_prunable(const std::string& name) {
    check(!links_of(name).empty(), [&] {
        return Error("E106",
                     fmt::format("'{}' cannot be pruned", name),
                     obstacle(name),
                     "cnn, cnn-bn and mlp can");
    });
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

}  // namespace lockstep
