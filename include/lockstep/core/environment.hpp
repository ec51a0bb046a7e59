// SPDX-License-Identifier: Apache-2.0
/// @file
/// Environment variables, read with types, and remembered so that a run can list them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A source of environment variables; the process's own or a map made by a test.
/// Not safe for use from several threads at once.
class Environment {
  public:
    Environment() = default;  ///< the process's environment

    /// Only these variables: for tests.
    explicit Environment(std::map<std::string, std::string> fixed) : fixed_(std::move(fixed)) {}

    /// The variable's value; nothing if it is not set. "" is set.
    std::optional<std::string> text(const std::string& name) const;

    /// A whole number. Errors: E113 naming the variable and its value.
    std::optional<std::int64_t> integer(const std::string& name) const;

    /// Every variable asked for so far, with the value found ("" and false when unset).
    struct Reading {
        std::string value;    ///< "" if it is not set
        bool is_set = false;  ///< a variable may be set to ""
    };
    const std::map<std::string, Reading>& readings() const { return readings_; }  ///< by name

    /// Names of all set variables that begin with `prefix`.
    std::vector<std::string> names_with_prefix(const std::string& prefix) const;

  private:
    std::optional<std::map<std::string, std::string>> fixed_;
    mutable std::map<std::string, Reading> readings_;
};

}  // namespace lockstep
