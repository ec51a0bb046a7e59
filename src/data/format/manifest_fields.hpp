// SPDX-License-Identifier: Apache-2.0
// Converts the members of manifest.json to and from JSON.
#pragma once

#include "lockstep/core/record.hpp"
#include "lockstep/data/manifest.hpp"

namespace lockstep {

/// Returns everything but the digest.
Json manifest_json(const Manifest& manifest);

/// Reads a manifest. Errors: E222 for members that are missing, of a wrong type, that contradict
/// each other, or that describe another kind of data set.
Manifest manifest_from_json(const Json& json, const std::string& origin, ManifestKind kind);

/// Reads or writes one member of "fields".
void describe(Record& record, Field& field);

/// Returns one member of "shards", whose index names `fields`. Errors: E222.
Json shard_json(const Shard& shard, const std::vector<Field>& fields);
Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin);

/// Returns `digest` if it has the form of one, else its length: it comes from an untrusted file.
std::string printable_digest(const std::string& digest);

}  // namespace lockstep
