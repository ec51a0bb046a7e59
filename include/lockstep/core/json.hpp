// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON from files that nobody vouches for: bounded depth, clear errors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;  ///< keeps the order in which members were added

/// Parses `text`, at most `max_depth` nested arrays and objects, unique keys.
/// Errors: E222 naming `origin` and where it stops making sense.
Json parse_json(std::string_view text, const std::string& origin, int max_depth = 64);

/// read_file + parse_json.
Json read_json(const std::filesystem::path& path, std::size_t limit_bytes = 64u << 20);

/// Member `key` of `object` as T. Errors: E222 naming origin, key and the type found.
template <class T>
T json_field(const Json& object, const std::string& key, const std::string& origin);

}  // namespace lockstep
