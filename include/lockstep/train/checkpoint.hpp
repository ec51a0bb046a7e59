// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints are written by any number of ranks and read by any other number.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace lockstep {

/// Collective. Writes root/step-NNNNNN from the `pieces` of all ranks, which together cover
/// `tensors` exactly once. load_checkpoint() returns `state` again. Commit order: temporary shards,
/// hashes, fsync, all ranks well, fencing, manifest, fsync, rename, fsync, `latest`, retention.
/// Errors (on all ranks): E701 non-finite values, E403, E405, E402, E408.
void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces);

/// Collective. Finds the newest whole checkpoint below `root`, or that of `step` alone, fills
/// `pieces` from it and returns its state; nothing if there is none. Damaged checkpoints are
/// skipped with a warning. Errors: E303 all damaged, if no `step` is given; E304 other tensors than
/// `tensors`, E305 format.
std::optional<CheckpointState> load_checkpoint(const Communicator& ranks,
                                               const std::filesystem::path& root,
                                               std::span<const TensorMeta> tensors,
                                               std::span<const TensorPiece> pieces,
                                               std::optional<std::int64_t> step = {});

}  // namespace lockstep
