// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/checkpoint.hpp"

#include "checkpoint/exported_tensors.hpp"

#include <algorithm>

namespace lockstep {

ExportSummary export_checkpoint(const fs::path& checkpoint,
                                const fs::path& file,
                                const WeightsExport& options) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    const auto tensors = exported_tensors(checkpoint, manifest, options.tensors);
    NewFile out(file);
    std::uint64_t total = 0;
    for (const ExportedTensor& tensor : tensors) total += tensor.bytes();
    if (options.progress)
        out.tell([&](std::uint64_t bytes) { options.progress(std::min(bytes, total), total); });
    if (options.format == WeightsFormat::npz)
        write_npz(out, tensors);
    else
        write_safetensors(out, tensors);
    out.finish();
    return {.step = manifest.state.step, .tensors = tensors.size(), .bytes = out.bytes()};
}

}  // namespace lockstep
