// SPDX-License-Identifier: Apache-2.0
#include "model/load_weights.hpp"

#include "checkpoint/initial_weights.hpp"

#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {

void load_weights(Model& model, const SafetensorsFile& file, const std::string& skip) {
    NamedTensors tensors = model.parameters();
    std::vector<std::string> counters;
    for (const NamedTensor& buffer : model.buffers())
        if (buffer.tensor.is_floating_point())
            tensors.push_back(buffer);
        else
            counters.push_back(buffer.name);
    std::vector<TensorMeta> wanted;
    for (const auto& [name, tensor] : tensors) wanted.push_back({name, tensor.sizes().vec()});
    const torch::NoGradGuard no_gradients;
    std::vector<float> values;
    for (const MatchedWeights& match : match_weights(file, wanted, counters, skip)) {
        values.resize(match.stored->count());
        file.read(*match.stored, values);
        at::Tensor& tensor = tensors[match.tensor].tensor;
        tensor.copy_(torch::from_blob(values.data(), tensor.sizes()));
    }
}

}  // namespace lockstep
