// SPDX-License-Identifier: Apache-2.0
// The members of manifest.json, to and from JSON.
#pragma once

#include "lockstep/core/record.hpp"
#include "lockstep/data/manifest.hpp"

namespace lockstep {

/// Everything but the digest.
Json manifest_json(const Manifest& manifest);

/// Errors: E222 for members that are missing, of a wrong type, that contradict each other, or that
/// describe another kind of data set.
Manifest manifest_from_json(const Json& json, const std::string& origin, ManifestKind kind);

/// One member of "fields".
void describe(Record& record, Field& field);

/// One member of "shards", whose index names `fields`. Errors: E222.
Json shard_json(const Shard& shard, const std::vector<Field>& fields);
Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin);

/// `digest` if it looks like one, else how long it is: it comes from a file that may say anything.
std::string printable_digest(const std::string& digest);

}  // namespace lockstep
