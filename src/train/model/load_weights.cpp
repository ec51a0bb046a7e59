// SPDX-License-Identifier: Apache-2.0
#include "model/load_weights.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

NamedTensors weights_of(const Model& model) {
    NamedTensors tensors = model.parameters();
    for (const NamedTensor& buffer : model.buffers())
        if (buffer.tensor.is_floating_point()) tensors.push_back(buffer);
    if (!model.has_frozen_in_file())
        for (const NamedTensor& frozen : model.frozen()) tensors.push_back(frozen);
    return tensors;
}

bool has_tensor(const WeightsFile& file, const std::string& name) {
    return std::ranges::find(file.tensors(), name, &StoredTensor::name) != file.tensors().end();
}

// What the file may have besides, if the values are the model's.
NamedTensors kept_by_file(const Model& model) {
    NamedTensors kept = model.fixed();
    if (model.has_frozen_in_file())
        for (const NamedTensor& frozen : model.frozen()) kept.push_back(frozen);
    return kept;
}

// A run that goes on has them from the model's file: what differs there would be lost.
void check_frozen(const NamedTensor& frozen,
                  const at::Tensor& values,
                  const std::filesystem::path& path,
                  WeightsFor use) {
    check(frozen.tensor.to(torch::kFloat32).equal(values), [&] {
        return Error(
            "E304",
            fmt::format("'{}' does not fit the model", path.string()),
            frozen.name + (frozen.tensor.requires_grad()
                               ? " is another name of a weight that has other values in the file"
                               : " is frozen and has other values in the model's file"),
            use == WeightsFor::training
                ? "keep those with --load-skip, or use the model that the weights are of"
                : "use weights of the run's model");
    });
}

std::size_t place_of(const std::vector<TensorMeta>& metas, const NamedTensor& wanted) {
    auto found = std::ranges::find(metas, "optimizer.average." + wanted.name, &TensorMeta::name);
    if (found == metas.end()) found = std::ranges::find(metas, wanted.name, &TensorMeta::name);
    check(found != metas.end() && found->shape == wanted.tensor.sizes().vec(), [&] {
        return Error("E304",
                     fmt::format("the checkpoint has no '{}' of the model's shape", wanted.name),
                     "it is of another model, or of other data",
                     "use the data that the run was trained on");
    });
    return static_cast<std::size_t>(found - metas.begin());
}

}  // namespace

void load_checkpointed(Model& model, const std::filesystem::path& checkpoints) {
    const std::vector<CheckpointInfo> found = list_checkpoints(checkpoints);
    check(!found.empty(), [&] {
        return Error("E301",
                     fmt::format("there is no checkpoint in '{}'", checkpoints.string()),
                     "",
                     "train the run first, or name weights with --weights FILE");
    });
    const std::vector<TensorMeta> metas = read_checkpoint_manifest(found.back().path).tensors;
    const torch::NoGradGuard no_gradients;
    const NamedTensors tensors = weights_of(model);
    std::vector<at::Tensor> values;
    std::vector<TensorPiece> pieces;
    for (const NamedTensor& wanted : tensors) {
        const std::size_t place = place_of(metas, wanted);
        values.push_back(torch::empty(wanted.tensor.sizes()));
        pieces.push_back({place, 0, metas[place].count(), values.back().data_ptr<float>()});
    }
    load_checkpoint(Communicator(), checkpoints, metas, pieces);
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].tensor.copy_(values[i]);
}

std::string load_weights(Model& model,
                         const WeightsFile& file,
                         const std::string& skip,
                         WeightsFor use,
                         const std::string& prefix) {
    NamedTensors tensors = weights_of(model);
    const std::size_t loadable = tensors.size();
    std::vector<std::string> counters;
    for (const NamedTensor& kept : kept_by_file(model))
        if (!kept.tensor.is_floating_point())
            counters.push_back(kept.name);
        else if (has_tensor(file, prefix + kept.name) || has_tensor(file, kept.name))
            tensors.push_back(kept);
    for (const NamedTensor& buffer : model.buffers())
        if (!buffer.tensor.is_floating_point()) counters.push_back(buffer.name);
    std::vector<TensorMeta> wanted;
    for (const auto& [name, tensor] : tensors) wanted.push_back({name, tensor.sizes().vec()});
    const torch::NoGradGuard no_gradients;
    const auto matched = match_weights(file, wanted, counters, skip, use, prefix);
    const auto loaded = std::ranges::count_if(
        matched, [&](const MatchedWeights& match) { return match.tensor < loadable; });
    check(loaded > 0, [&] {
        return Error("E107",
                     fmt::format("--load-skip '{}' leaves nothing to load", printable(skip)),
                     fmt::format("it matches all {} tensors of the model", loadable),
                     "drop --load-weights and --load-skip, or skip fewer tensors");
    });
    for (const MatchedWeights& match : matched) {
        const NamedTensor& own = tensors[match.tensor];
        const at::Tensor values = torch::empty(own.tensor.sizes());
        file.read(*match.stored, {values.data_ptr<float>(), match.stored->count()});
        if (match.tensor < loadable)
            own.tensor.copy_(values);
        else
            check_frozen(own, values, file.path(), use);
    }
    return fmt::format(
        "weights: {} of {} tensors of the model loaded from '{}', {} of its {} not used",
        loaded,
        loadable,
        file.path().string(),
        file.tensors().size() - matched.size(),
        file.tensors().size());
}

}  // namespace lockstep
