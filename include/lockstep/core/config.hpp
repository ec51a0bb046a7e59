// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings from TOML files, flattened to dotted keys that remember file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace lockstep {

/// What a setting may be.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string>;

/// A value and the place it came from, for errors and for `config show --origin`.
struct ConfigEntry {
    ConfigValue value;   ///< with the type that its file gave it
    std::string origin;  ///< "train.toml:7:1"
};

/// Keys like "optimizer.lr", in order of name.
using Config = std::map<std::string, ConfigEntry>;

/// Refuses keys and values that are nested so deep that TOML's parser, which calls itself for each
/// part of a key, would overflow the stack. Errors: E110 naming `file` and the line.
void check_toml_depth(std::string_view text, const std::string& file);

/// Reads a TOML file. Errors: E110 (syntax, with line and caret; nested too deep), E112 (a value
/// that is no scalar), E115 (not text), E116 (not a readable file).
Config read_config(const std::filesystem::path& path);

/// As text that parses back to the same value.
std::string config_text(const ConfigValue& value);

/// "text", "a whole number", ... for error messages.
std::string config_type_name(const ConfigValue& value);

}  // namespace lockstep
