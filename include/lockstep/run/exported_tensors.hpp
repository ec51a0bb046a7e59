// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which tensors of a checkpoint leave it, by which names.
#pragma once

#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <filesystem>
#include <vector>

namespace lockstep {

/// In the checkpoint's order, counters last. Values are read when they are fetched, and `manifest`
/// is borrowed until then. Errors: E106 (no average); when fetched, those of read_whole_piece().
std::vector<ExportedTensor> exported_tensors(const std::filesystem::path& checkpoint,
                                             const CheckpointManifest& manifest,
                                             ExportedTensors wanted);

}  // namespace lockstep
