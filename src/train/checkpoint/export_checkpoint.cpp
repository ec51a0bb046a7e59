// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "checkpoint/checkpoint_manifest.hpp"
#include "checkpoint/tensor_files.hpp"

namespace lockstep {
namespace {

constexpr std::string_view optimizer_prefix = "optimizer.";

std::vector<std::byte> values_of(const fs::path& checkpoint,
                                 const CheckpointManifest& manifest,
                                 std::size_t tensor) {
    std::vector<std::byte> values(manifest.tensors[tensor].count() * sizeof(float));
    for (const StoredPiece& piece : manifest.pieces)
        if (piece.tensor == tensor)
            read_whole_piece(checkpoint,
                             manifest,
                             piece,
                             std::span(values).subspan(piece.start * sizeof(float),
                                                       piece.count * sizeof(float)));
    return values;
}

std::vector<std::byte> values_of(std::int64_t counter) {
    const auto bytes = std::as_bytes(std::span(&counter, 1));
    return {bytes.begin(), bytes.end()};
}

}  // namespace

ExportSummary export_checkpoint(const fs::path& checkpoint,
                                const fs::path& file,
                                const WeightsExport& options) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    std::vector<ExportedTensor> tensors;
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const TensorMeta& meta = manifest.tensors[i];
        const bool is_of_model = !meta.name.starts_with(optimizer_prefix);
        if (is_of_model || options.tensors == ExportedTensors::all)
            tensors.push_back({.name = meta.name, .shape = meta.shape, .values = [&, i] {
                                   return values_of(checkpoint, manifest, i);
                               }});
    }
    for (const auto& [name, counter] : manifest.state.counters)
        tensors.push_back({.name = name,
                           .element = ExportedElement::i64,
                           .values = [value = counter] { return values_of(value); }});
    NewFile out(file);
    if (options.format == WeightsFormat::npz)
        write_npz(out, tensors);
    else
        write_safetensors(out, tensors);
    out.finish();
    return {.step = manifest.state.step, .tensors = tensors.size(), .bytes = out.bytes()};
}

}  // namespace lockstep
