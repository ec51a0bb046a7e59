// SPDX-License-Identifier: Apache-2.0
// Converts the members of manifest.json to and from JSON.
#pragma once

#include "lockstep/core/record.hpp"
#include "lockstep/data/manifest.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// One member of "fields".
void describe(Record& record, Field& field);

/// One member of "shards".
void describe(Record& record, Shard& shard);

/// Returns one member of "shards". Errors: E222, also if its index names other fields than
/// `fields`.
Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin);

/// Whether a field may have this name: letters, digits, '_' and '-', at least one.
bool is_field_name(std::string_view name);

/// A UUID made from content (RFC 9562, version 8), of `digest`'s 32 hexadecimal digits.
std::string uuid_from(std::string digest);

}  // namespace lockstep
