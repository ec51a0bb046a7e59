// SPDX-License-Identifier: Apache-2.0
// What tests/train/model/models_peer asks, for a model and FOLDER/input.safetensors: the logits
// with the weights that travelled here, FOLDER/weights.safetensors; and first weights of our own
// with their logits, to travel back in FOLDER/answer.
//
//   test_train_models_peer FOLDER MODEL CHANNELS HEIGHT WIDTH CLASSES
#include "lockstep/core/error.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "model/built_in.hpp"
#include "model/load_weights.hpp"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

std::shared_ptr<Classifier> asked_model(const std::string& name, const ModelShape& shape) {
    torch::manual_seed(1);
    if (name == "unet") return models::unet(shape, {.width = 8});
    if (name == "gpt")
        return models::gpt({.vocabulary = 97, .context = 16, .layers = 3, .heads = 4, .width = 32},
                           {});
    return make_model({name, true}, shape, 1);
}

// Of whole numbers for gpt.
at::Tensor read_input(const fs::path& path, const std::string& name) {
    const WeightsFile file(path);
    const StoredTensor& stored = file.tensors().front();
    const at::Tensor input = torch::empty(stored.shape);
    file.read(stored, {input.data_ptr<float>(), stored.count()});
    return name == "gpt" ? input.to(torch::kInt64)
                         : input.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor logits_of(Model& model, const at::Tensor& input) {
    const at::NoGradGuard no_gradients;
    return only(model.forward({{"input", input}}));
}

void write_answer(const fs::path& path, const Tensors& tensors) {
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

void answer_peer(const fs::path& folder, const std::string& name, const ModelShape& shape) {
    const at::Tensor input = read_input(folder / "input.safetensors", name);
    const auto model = model_of(asked_model(name, shape));
    model->set_mode(ModelMode::evaluate);
    Tensors answer;
    for (const NamedTensors& tensors : {model->parameters(), model->buffers()})
        for (const NamedTensor& own : tensors)
            if (own.tensor.is_floating_point())
                answer["own." + own.name] = own.tensor.detach().clone();
    answer["own logits"] = logits_of(*model, input);
    load_weights(*model, WeightsFile(folder / "weights.safetensors"), "", WeightsFor::training);
    answer["logits"] = logits_of(*model, input);
    write_answer(folder / "answer", answer);
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) {
    if (count != 7) return 64;
    const auto number = [&](int i) { return std::stoll(words[i]); };
    try {
        lockstep::answer_peer(words[1], words[2], {number(3), number(4), number(5), number(6)});
    } catch (const lockstep::Error& error) {
        std::fputs((error.text() + "\n").c_str(), stderr);
        return 1;
    }
    return 0;
}
