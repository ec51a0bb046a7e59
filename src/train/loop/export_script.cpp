// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/export_script.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/safetensors.hpp"

#include "model/model_file.hpp"

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// The unchanged file of the run's model.
std::filesystem::path model_file_of(const std::filesystem::path& run) {
    const RunSettings found = read_run_settings(run);
    const std::string& model = found.settings.model.name;
    check(source_of(model) == ModelSource::script, [&] {
        return Error("E106",
                     "--format torchscript does not go with this run",
                     fmt::format("its model, {}, is no TorchScript: there is no file of code that "
                                 "the weights could go back to",
                                 model),
                     "use --format safetensors");
    });
    const std::string digest = file_digest(model);
    check(digest == found.model_digest, [&] {
        return Error("E306",
                     fmt::format("'{}' is not the model that the run was trained with", model),
                     fmt::format("its digest is {}, the run's is {}", digest, found.model_digest),
                     "put the file back");
    });
    return model;
}

at::Tensor tensor_of(const ExportedTensor& exported) {
    std::vector<std::byte> values = exported.values();
    const auto type = exported.element == ExportedElement::f32 ? torch::kFloat32 : torch::kInt64;
    return torch::from_blob(values.data(), exported.shape, type).clone();
}

}  // namespace

ExportSummary export_script(const std::filesystem::path& run,
                            const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file,
                            ExportedTensors tensors) {
    const std::filesystem::path model = model_file_of(run);
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    NamedTensors values;
    for (const ExportedTensor& exported : exported_tensors(checkpoint, manifest, tensors))
        values.push_back({exported.name, tensor_of(exported)});
    NewFile out(file);
    out.write(bytes_of(script_with(model, values)));
    out.finish();
    return {.step = manifest.state.step, .tensors = values.size(), .bytes = out.bytes()};
}

}  // namespace lockstep
