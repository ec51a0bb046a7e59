// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view optimizer_prefix = "optimizer.", average_prefix = "optimizer.average.";

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

// The tensors of a checkpoint that are wanted, by the names that they get.
class Selection {
  public:
    Selection(const CheckpointManifest& manifest, ExportedTensors wanted)
        : tensors_(manifest.tensors), wanted_(wanted) {
        const bool has_average = std::ranges::any_of(
            tensors_, [](const TensorMeta& meta) { return meta.name.starts_with(average_prefix); });
        check(has_average || wanted != ExportedTensors::averaged, [] {
            return Error("E106",
                         "--average does not go with this run",
                         "it was trained without --ema: there is no average of its weights",
                         "drop --average");
        });
    }

    bool has(const std::string& name) const {
        return !name.starts_with(optimizer_prefix) || wanted_ == ExportedTensors::all;
    }

    /// The number of the tensor whose values tensor number `i` gets.
    std::size_t values_of(std::size_t i) const {
        if (wanted_ != ExportedTensors::averaged) return i;
        const std::string name = std::string(average_prefix) + tensors_[i].name;
        const auto average = std::ranges::find(tensors_, name, &TensorMeta::name);
        return average == tensors_.end() ? i : static_cast<std::size_t>(average - tensors_.begin());
    }

  private:
    const std::vector<TensorMeta>& tensors_;
    ExportedTensors wanted_;
};

}  // namespace

std::vector<ExportedTensor> exported_tensors(const fs::path& checkpoint,
                                             const CheckpointManifest& manifest,
                                             ExportedTensors wanted) {
    const Selection selection(manifest, wanted);
    std::vector<ExportedTensor> tensors;
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const TensorMeta& meta = manifest.tensors[i];
        if (!selection.has(meta.name)) continue;
        const std::size_t source = selection.values_of(i);
        tensors.push_back(
            {.name = meta.name, .shape = meta.shape, .values = [checkpoint, &manifest, source] {
                 return values_of(checkpoint, manifest, source);
             }});
    }
    for (const auto& [name, counter] : manifest.state.counters)
        if (selection.has(name))
            tensors.push_back({.name = name,
                               .element = ExportedElement::i64,
                               .values = [value = counter] { return values_of(value); }});
    return tensors;
}

ExportSummary export_checkpoint(const fs::path& checkpoint,
                                const fs::path& file,
                                const WeightsExport& options) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    return write_export(
        file, manifest, exported_tensors(checkpoint, manifest, options.tensors), options);
}

ExportSummary write_export(const fs::path& file,
                           const CheckpointManifest& manifest,
                           const std::vector<ExportedTensor>& tensors,
                           const WeightsExport& options) {
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
