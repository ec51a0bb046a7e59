// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/checkpoint.hpp"

#include "checkpoint/exported_tensors.hpp"

namespace lockstep {

ExportSummary export_checkpoint(const fs::path& checkpoint,
                                const fs::path& file,
                                const WeightsExport& options) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    const auto tensors = exported_tensors(checkpoint, manifest, options.tensors);
    NewFile out(file);
    if (options.format == WeightsFormat::npz)
        write_npz(out, tensors);
    else
        write_safetensors(out, tensors);
    out.finish();
    return {.step = manifest.state.step, .tensors = tensors.size(), .bytes = out.bytes()};
}

}  // namespace lockstep
