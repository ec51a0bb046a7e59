// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint as values.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <string>
#include <vector>

namespace lockstep {

inline constexpr int checkpoint_format = 1;

/// A stored run of one tensor's elements.
struct StoredPiece {
    std::size_t tensor = 0;
    std::uint64_t start = 0, count = 0;  ///< elements
    std::string file;
    std::uint64_t offset = 0;  ///< of the first byte in the file
    std::string hash;          ///< XXH3-128 of the bytes, hexadecimal
};

Json to_json(const StoredPiece& piece);
StoredPiece piece_from_json(const Json& json, const std::string& origin);

/// What a manifest lists.
struct CheckpointTable {
    std::vector<TensorMeta> tensors;
    std::vector<StoredPiece> pieces;
};

/// The manifest's text, with its own digest as the last field.
std::string checkpoint_manifest_text(const Json& state,
                                     std::span<const TensorMeta> tensors,
                                     std::span<const StoredPiece> pieces);

/// Errors: E310 digest, E305 format, E222, E309 pieces that do not cover the tensors.
Json parse_checkpoint_manifest(const std::string& text, const std::string& origin);
CheckpointTable table_of(const Json& manifest, const std::string& origin);

}  // namespace lockstep
