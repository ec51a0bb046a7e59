// SPDX-License-Identifier: Apache-2.0
/// @file
/// Typed environment variables. Every variable read is remembered, so that a run can list them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A source of environment variables: the process's own, or a map made by a test. Not thread-safe.
class Environment {
  public:
    Environment() = default;  ///< the process's environment

    /// Holds only these variables, for tests.
    explicit Environment(std::map<std::string, std::string> fixed) : fixed_(std::move(fixed)) {}

    /// Returns the variable's value, or nothing if it is not set. "" counts as set.
    std::optional<std::string> text(const std::string& name) const;

    /// Returns the value as a whole number. Errors: E113 naming the variable and its value.
    std::optional<std::int64_t> integer(const std::string& name) const;

    /// A variable that was asked for, and the value found.
    struct Reading {
        std::string value;    ///< "" if it is not set
        bool is_set = false;  ///< a variable may be set to ""
    };
    const std::map<std::string, Reading>& readings() const {
        return readings_;
    }  ///< all variables asked for so far, by name

    /// Returns the names of all set variables that begin with `prefix`.
    std::vector<std::string> names_with_prefix(const std::string& prefix) const;

  private:
    std::optional<std::map<std::string, std::string>> fixed_;
    mutable std::map<std::string, Reading> readings_;
};

}  // namespace lockstep
