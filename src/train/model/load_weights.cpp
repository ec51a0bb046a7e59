// SPDX-License-Identifier: Apache-2.0
#include "model/load_weights.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
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
                  const fs::path& path,
                  const std::string& fix) {
    check(frozen.tensor.to(torch::kFloat32).equal(values),
          "E304",
          fmt::format("'{}' does not fit the model", path.string()),
          frozen.name + (frozen.tensor.requires_grad()
                             ? " is another name of a weight that has other values in the file"
                             : " is frozen and has other values in the model's file"),
          fix);
}

std::size_t place_of(const std::vector<TensorMeta>& metas, const NamedTensor& wanted) {
    auto found = std::ranges::find(metas, "optimizer.average." + wanted.name, &TensorMeta::name);
    if (found == metas.end()) found = std::ranges::find(metas, wanted.name, &TensorMeta::name);
    check(found != metas.end() && found->shape == wanted.tensor.sizes().vec(),
          "E304",
          fmt::format("the checkpoint has no '{}' of the model's shape", wanted.name),
          "it is of another model, or of other data",
          "use the data that the run was trained on");
    return static_cast<std::size_t>(found - metas.begin());
}

// Those of a model's file that learned in the run of such a checkpoint.
NamedTensors frozen_now(const Model& model, const std::vector<TensorMeta>& metas) {
    if (!model.has_frozen_in_file()) return {};
    NamedTensors found = model.frozen();
    std::erase_if(found, [&](const NamedTensor& one) {
        return std::ranges::count(metas, one.name, &TensorMeta::name) == 0;
    });
    return found;
}

// To keep what these tensors learned there.
std::string way_with_file(const Model& model, const fs::path& checkpoint, std::int64_t step) {
    const bool is_script = model.author() == ModelAuthor::user_script;
    return fmt::format(
        "give --model {0} beside --from, after: lockstep export {1} --step {2} --format {3} "
        "--out {0}",
        is_script ? "all.pt" : "all.pt2",
        shell_word(checkpoint.parent_path().parent_path().string()),
        step,
        is_script ? "torchscript" : "pt2");
}

// The first run would have the file's values, but later starts take those of the model's file.
std::string way_to_keep(const NamedTensor& own, ModelAuthor author) {
    if (own.tensor.requires_grad())
        return "keep those with --load-skip, or use the model that the weights are of";
    const bool is_script = author == ModelAuthor::user_script;
    return fmt::format(
        "give a --model that has the weights: 'lockstep export RUN --format {} --out {}' writes it "
        "of their run, or load them in Python before the export; --load-skip keeps the values of "
        "the model's file",
        is_script ? "torchscript" : "pt2",
        is_script ? "all.pt" : "all.pt2");
}

// A tensor of a model, and its place in a checkpoint.
struct FoundTensor {
    at::Tensor tensor;
    std::size_t place = 0;
};

// From the checkpoint of `step` beside `path`, or from the newest whole one. Returns its step.
std::int64_t read_into(const std::vector<FoundTensor>& found,
                       const std::vector<TensorMeta>& metas,
                       const fs::path& path,
                       std::optional<std::int64_t> step) {
    const torch::NoGradGuard no_gradients;
    std::vector<at::Tensor> values;
    std::vector<TensorPiece> pieces;
    for (const FoundTensor& wanted : found) {
        values.push_back(torch::empty(wanted.tensor.sizes()));
        pieces.push_back(
            {wanted.place, 0, metas[wanted.place].count(), values.back().data_ptr<float>()});
    }
    const auto state = load_checkpoint(Communicator(), path.parent_path(), metas, pieces, step);
    check(state.has_value(),
          "E303",
          fmt::format("checkpoint '{}' is not whole", path.string()),
          "the warning above gives the reason",
          "use another: 'lockstep ckpt ls RUN' lists them");
    for (std::size_t i = 0; i < found.size(); ++i) found[i].tensor.copy_(values[i]);
    return state->step;
}

// A run's checkpoint has nothing of what it froze where the model's file has it.
std::string way_to_fit(const Model& model,
                       const std::vector<std::string>& lacking,
                       std::size_t misfits) {
    if (misfits == 0 || lacking.size() < misfits || !model.has_frozen_in_file())
        return "leave tensors at their initial values with --load-skip 'NAME*', or use the model "
               "of that run";
    return fmt::format(
        "if that run froze them, take them from the model's file with --load-skip '{}'; else use "
        "the model of that run",
        fmt::join(lacking, ","));
}

}  // namespace

std::int64_t load_checkpointed(Model& model, const fs::path& run, const std::string& choice) {
    const CheckpointInfo chosen = chosen_checkpoint(run, choice);
    const std::vector<TensorMeta> metas = read_checkpoint_manifest(chosen.path).tensors;
    std::vector<FoundTensor> found;
    for (const NamedTensor& wanted : weights_of(model))
        found.push_back({wanted.tensor, place_of(metas, wanted)});
    return read_into(
        found, metas, chosen.path, choice == "newest" ? std::nullopt : std::optional(chosen.step));
}

std::string load_from_run(Model& model, const fs::path& checkpoint, const std::string& skip) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    const std::vector<TensorMeta>& metas = manifest.tensors;
    const std::vector<std::string> patterns = name_patterns(skip);
    std::set<std::string> names;
    std::vector<std::string> misfits, lacking;
    std::vector<FoundTensor> found;
    const auto find = [&](const NamedTensor& wanted) {
        names.insert(wanted.name);
        if (matches_any(patterns, wanted.name)) return;
        const auto meta = std::ranges::find(metas, wanted.name, &TensorMeta::name);
        if (meta == metas.end()) {
            misfits.push_back(wanted.name + " is not in it");
            lacking.push_back(wanted.name);
        } else if (meta->shape != wanted.tensor.sizes().vec())
            misfits.push_back(fmt::format("{} is [{}] there and [{}] in the model",
                                          wanted.name,
                                          fmt::join(meta->shape, ", "),
                                          fmt::join(wanted.tensor.sizes().vec(), ", ")));
        else
            found.push_back({wanted.tensor, static_cast<std::size_t>(meta - metas.begin())});
    };
    for (const NamedTensor& wanted : weights_of(model)) find(wanted);
    const std::size_t loaded = found.size();
    const NamedTensors kept = frozen_now(model, metas);
    NamedTensors copies;
    for (const auto& [name, tensor] : kept) {
        copies.push_back({name, tensor.to(torch::kFloat32).clone()});
        find(copies.back());
    }
    check_patterns_match("load-skip", patterns, names, "the model has no tensor");
    check(misfits.empty() && loaded > 0,
          "E304",
          fmt::format("checkpoint '{}' does not fit the model", checkpoint.string()),
          misfits.empty() ? "--load-skip leaves nothing to load" : names_text(misfits),
          way_to_fit(model, lacking, misfits.size()));
    read_into(found, metas, checkpoint, manifest.state.step);
    for (std::size_t i = 0; i < kept.size(); ++i)
        check_frozen(kept[i],
                     copies[i].tensor,
                     checkpoint,
                     way_with_file(model, checkpoint, manifest.state.step));
    return fmt::format("weights: {} tensors of '{}' loaded, {} skipped",
                       loaded,
                       checkpoint.string(),
                       names.size() - found.size());
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
    check(loaded > 0,
          "E107",
          fmt::format("--load-skip '{}' leaves nothing to load", printable(skip)),
          fmt::format("it matches all {} tensors of the model", loadable),
          "drop --load-weights and --load-skip, or skip fewer tensors");
    for (const MatchedWeights& match : matched) {
        const NamedTensor& own = tensors[match.tensor];
        const at::Tensor values = torch::empty(own.tensor.sizes());
        file.read(*match.stored, {values.data_ptr<float>(), match.stored->count()});
        if (match.tensor < loadable)
            own.tensor.copy_(values);
        else
            check_frozen(own,
                         values,
                         file.path(),
                         use == WeightsFor::training ? way_to_keep(own, model.author())
                                                     : "use weights of the run's model");
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
