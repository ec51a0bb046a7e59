// SPDX-License-Identifier: Apache-2.0
/// @file
/// The manifest of a checkpoint as values.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A stored run of one tensor's elements.
struct StoredPiece {
    std::uint64_t tensor = 0;
    std::uint64_t start = 0, count = 0;  ///< elements
    std::string file;
    std::uint64_t offset = 0;  ///< of the first byte in the file
    std::string hash;          ///< XXH3-128 of the bytes, hexadecimal
};

void describe(Record& record, StoredPiece& piece);

/// What manifest.json of a checkpoint says.
struct CheckpointManifest {
    CheckpointState state;
    std::vector<TensorMeta> tensors;
    std::vector<StoredPiece> pieces;
};

/// The text, with its own digest as the last field.
std::string checkpoint_manifest_text(const CheckpointManifest& manifest);

/// Errors: E310 digest, E305 format, E222, E309 pieces that do not cover the tensors.
CheckpointManifest parse_checkpoint_manifest(const std::string& text, const std::string& origin);

/// The manifest in a checkpoint's folder. Errors: the same, and E201.
CheckpointManifest read_checkpoint_manifest(const std::filesystem::path& checkpoint);

/// Fills `out`, of the piece's floats, from its file. Errors: E310 if their hash is another.
void read_whole_piece(const std::filesystem::path& checkpoint,
                      const CheckpointManifest& manifest,
                      const StoredPiece& piece,
                      std::span<std::byte> out);

}  // namespace lockstep
