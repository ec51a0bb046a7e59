// SPDX-License-Identifier: Apache-2.0
// What a pack will make, before anything is read: pure functions of the source's shape and options.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/data/pack.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The manifest but for statistics, uuid and what shards hold: they have names and samples.
/// Errors: E102, E106 (options), E214 (no samples).
Manifest outline(const RowSource& source, const PackOptions& options);

/// All that decides the bytes of the result, by the words of the options. `content` is the source's
/// fingerprint. Errors: E102 (level).
Json identity_of(const Manifest& manifest, const PackOptions& options, const std::string& content);

/// RFC 9562, version 8: made from what it names, so that equal packs are equal. `manifest` has its
/// statistics.
std::string uuid_of(Manifest manifest, const std::string& content);

/// The source's row for each row of the data set; empty if they are the same.
std::vector<std::uint64_t> source_rows(std::uint64_t samples, const PackOptions& options);

/// Of all fields, uncompressed.
std::uint64_t raw_bytes_of(const Manifest& manifest);

}  // namespace lockstep
