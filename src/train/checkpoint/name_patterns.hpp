// SPDX-License-Identifier: Apache-2.0
// Patterns such as "fc.*,head.*" that name tensors of a model.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// The patterns of `list`, which commas separate. Empty ones are left out.
std::vector<std::string> name_patterns(const std::string& list);

/// Whether `pattern` (`*`, `?`, `[...]`) matches all of `name`.
bool matches(const std::string& pattern, const std::string& name);

/// Whether any of `patterns` matches `name`.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// Errors: E107 for a pattern of `option` that matches none of `names`. `whose` says what has no
/// such tensor.
void check_patterns_match(const std::string& option,
                          const std::vector<std::string>& patterns,
                          const std::set<std::string>& names,
                          const std::string& whose);

/// "a, b, c and 4 more".
std::string names_text(const std::vector<std::string>& names);

}  // namespace lockstep
