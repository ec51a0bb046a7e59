// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings from TOML files, flattened to dotted keys that remember file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>

namespace lockstep {

/// The type of a setting's value.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string>;

/// What a list in a file holds.
enum class ConfigList { none, texts, numbers };

/// A value and its origin, for errors and for `config show --origin`.
struct ConfigEntry {
    ConfigValue value;                   ///< the value, with the type that its file gave it
    std::string origin;                  ///< "train.toml:7:1"
    ConfigList list = ConfigList::none;  ///< of a list: `value` has its items as text, one a line
};

/// Entries by keys like "optimizer.lr", sorted.
using Config = std::map<std::string, ConfigEntry>;

/// Reads a TOML file. Errors: E110 (syntax, with line and caret; nested too deep), E112 (a value
/// that is neither a scalar nor a list of texts or of numbers), E115 (not text), E116 (not a
/// readable file).
Config read_config(const std::filesystem::path& path);

/// Returns text that parses back to the same value.
std::string config_text(const ConfigValue& value);

/// Returns the type as error messages name it: "text", "a whole number", ...
std::string config_type_name(const ConfigValue& value);

}  // namespace lockstep
