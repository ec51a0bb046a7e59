// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/export_script.hpp"

#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"

#include "model/model_file.hpp"

#include <torch/types.h>

namespace lockstep {
namespace {

at::Tensor tensor_of(const ExportedTensor& exported) {
    std::vector<std::byte> values = exported.values();
    const auto type = exported.element == ExportedElement::f32 ? torch::kFloat32 : torch::kInt64;
    return torch::from_blob(values.data(), exported.shape, type).clone();
}

}  // namespace

ExportSummary export_script(const fs::path& run,
                            const fs::path& checkpoint,
                            const fs::path& file,
                            ExportedTensors tensors) {
    const fs::path model = trained_model_file(run, ModelSource::script, "torchscript");
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
