// SPDX-License-Identifier: Apache-2.0
/// @file
/// The manifest of a checkpoint as values, and the tensors and names of an export.
#pragma once

#include "lockstep/core/record.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A stored range of one tensor's elements.
struct StoredPiece {
    std::uint64_t tensor = 0;
    std::uint64_t start = 0, count = 0;  ///< elements
    std::string file;
    std::uint64_t offset = 0;  ///< first byte in the file
    std::string hash;          ///< XXH3-128 of the bytes, hexadecimal
};

/// Reads or writes it.
void describe(Record& record, StoredPiece& piece);

/// The content of a checkpoint's manifest.json.
struct CheckpointManifest {
    CheckpointState state;
    std::vector<TensorMeta> tensors;
    std::vector<StoredPiece> pieces;
};

/// Returns the text, with its own digest as the last field.
std::string checkpoint_manifest_text(const CheckpointManifest& manifest);

/// Parses a manifest. Errors: E310 digest, E305 format, E222, E309 uncovered tensors.
CheckpointManifest parse_checkpoint_manifest(const std::string& text, const std::string& origin);

/// Reads the manifest in a checkpoint's folder. Errors: the same, and E201.
CheckpointManifest read_checkpoint_manifest(const fs::path& checkpoint);

/// Fills `out`, which has the piece's number of floats, from its file. Errors: E310 (hash).
void read_whole_piece(const fs::path& checkpoint,
                      const CheckpointManifest& manifest,
                      const StoredPiece& piece,
                      std::span<std::byte> out);

/// Returns CheckpointState::parameter_hash of the values in the files of `checkpoint`: that of all
/// tensors but the optimizer's, where those from `frozen_from` on follow the model's counters.
/// Errors: E201, E202, E309.
std::string stored_parameter_hash(const fs::path& checkpoint,
                                  const CheckpointManifest& manifest,
                                  std::size_t frozen_from,
                                  FileAccess access);

/// Returns the entry of a whole tensor by name and shape, or of a part as a range of elements.
SafetensorsEntry entry_of(const TensorMeta& tensor, std::uint64_t start, std::uint64_t count);

/// Returns the path at which the checkpoint of `step` is written until it is complete.
fs::path unfinished_checkpoint(const CheckpointPlace& place, std::int64_t step);

/// Turns `unfinished`, whose shards are complete, into the checkpoint of `state`, and then removes
/// older ones as state.retention says. Errors: E401, E402, E405, and those of
/// place.check_still_ours.
void commit_checkpoint(const CheckpointPlace& place,
                       const fs::path& unfinished,
                       const CheckpointState& state,
                       const std::string& manifest);

/// Returns the tensors in the checkpoint's order, counters last. Values are read when they are
/// fetched, and `manifest` is borrowed until then. Errors: E106 (no average); when fetched, those
/// of read_whole_piece().
std::vector<ExportedTensor> exported_tensors(const fs::path& checkpoint,
                                             const CheckpointManifest& manifest,
                                             ExportedTensors wanted);

/// Writes `tensors` into the new file `file`, as `options` say. Errors: those of
/// export_checkpoint().
ExportSummary write_export(const fs::path& file,
                           const CheckpointManifest& manifest,
                           const std::vector<ExportedTensor>& tensors,
                           const WeightsExport& options);

}  // namespace lockstep
