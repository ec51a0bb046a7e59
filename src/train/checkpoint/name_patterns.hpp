// SPDX-License-Identifier: Apache-2.0
// Patterns such as "fc.*,head.*" that name tensors of a model.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the patterns of `list`, which commas separate, without empty ones.
std::vector<std::string> name_patterns(const std::string& list);

/// Returns true if `pattern` (`*`, `?`, `[...]`) matches all of `name`.
bool matches(const std::string& pattern, const std::string& name);

/// Returns true if any of `patterns` matches `name`.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// Checks that each pattern of `option` matches one of `names`. Errors: E107; `whose` says what has
/// no such tensor.
void check_patterns_match(const std::string& option,
                          const std::vector<std::string>& patterns,
                          const std::set<std::string>& names,
                          const std::string& whose);

/// Returns "a, b, c and 4 more".
std::string names_text(const std::vector<std::string>& names);

}  // namespace lockstep
