// SPDX-License-Identifier: Apache-2.0
// What tests/train/model/models_peer asks: the logits of a model with weights that travelled here,
// and first weights of our own with their logits, to travel back. FOLDER/request -> FOLDER/answer.
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/safetensors.hpp"
#include "lockstep/train/model.hpp"

#include "model/built_in.hpp"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct PeerRequest {
    std::string model;
    ModelShape shape;
    Tensors tensors;
};

PeerRequest read_request(const std::filesystem::path& path) {
    const std::string bytes = read_file(path, 1u << 30);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    const Json header = parse_json(bytes.substr(8, length), path.string());
    PeerRequest request;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const auto sizes = entry["shape"].get<std::vector<std::int64_t>>();
        const std::size_t begin = 8 + length + entry["data_offsets"][0].get<std::size_t>();
        request.tensors[name] = torch::empty(sizes);
        std::memcpy(
            request.tensors[name].data_ptr(), bytes.data() + begin, request.tensors[name].nbytes());
    }
    const Json& said = header["__metadata__"];
    const auto number = [&](const char* name) { return std::stoll(said[name].get<std::string>()); };
    request.model = said["model"].get<std::string>();
    request.shape = {number("channels"), number("height"), number("width"), number("classes")};
    return request;
}

std::shared_ptr<Classifier> asked_model(const PeerRequest& request) {
    torch::manual_seed(1);
    if (request.model == "unet") return models::unet(request.shape, {.width = 8});
    if (request.model == "gpt")
        return models::gpt({.vocabulary = 97, .context = 16, .layers = 3, .heads = 4, .width = 32},
                           {});
    return make_model({request.model, true}, request.shape, 1);
}

// Parameters and running statistics by name: what a file of weights holds.
Tensors weights_of(const Classifier& model) {
    Tensors weights;
    for (const auto& item : model.named_parameters()) weights[item.key()] = item.value().detach();
    for (const auto& item : model.named_buffers())
        if (item.value().is_floating_point()) weights[item.key()] = item.value();
    return weights;
}

at::Tensor logits_of(Classifier& model, const PeerRequest& request) {
    model.eval();
    const at::NoGradGuard no_gradients;
    const at::Tensor input = request.tensors.at("input");
    return model.forward(request.model == "gpt" ? input.to(torch::kInt64)
                                                : input.contiguous(at::MemoryFormat::ChannelsLast));
}

void write_answer(const std::filesystem::path& path, const Tensors& tensors) {
    std::vector<SafetensorsEntry> entries;
    std::vector<at::Tensor> kept;
    for (const auto& [name, tensor] : tensors) {
        const at::Tensor& dense = kept.emplace_back(tensor.contiguous());
        entries.push_back(
            {name,
             dense.sizes().vec(),
             {dense.const_data_ptr<float>(), static_cast<std::size_t>(dense.numel())}});
    }
    write_safetensors(path, entries);
}

// Errors: E217 where weights have other names or shapes than the model's.
void take_weights(const Tensors& own, const PeerRequest& request) {
    check(own.size() + 1 == request.tensors.size(), [&] {
        return Error(
            "E217",
            fmt::format(
                "{} tensors travelled, the model has {}", request.tensors.size() - 1, own.size()),
            "",
            "");
    });
    for (const auto& [name, tensor] : request.tensors) {
        if (name == "input") continue;
        check(own.contains(name) && own.at(name).sizes() == tensor.sizes(),
              [&] { return Error("E217", "the model has no such tensor '" + name + "'", "", ""); });
        own.at(name).copy_(tensor);
    }
}

void answer_peer(const std::filesystem::path& folder) {
    const PeerRequest request = read_request(folder / "request");
    const auto model = asked_model(request);
    Tensors answer;
    const Tensors weights = weights_of(*model);
    for (const auto& [name, tensor] : weights) answer["own." + name] = tensor.clone();
    answer["own logits"] = logits_of(*model, request);
    take_weights(weights, request);
    answer["logits"] = logits_of(*model, request);
    write_answer(folder / "answer", answer);
}

}  // namespace
}  // namespace lockstep

int main(int, char** argv) {
    try {
        lockstep::answer_peer(argv[1]);
    } catch (const lockstep::Error& error) {
        std::fputs((error.text() + "\n").c_str(), stderr);
        return 1;
    }
    return 0;
}
