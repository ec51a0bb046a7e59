// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/name_patterns.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

namespace lockstep {
namespace {

constexpr std::size_t most_named = 8;

}  // namespace

std::vector<std::string> name_patterns(const std::string& list) {
    std::vector<std::string> patterns;
    for (const auto part : list | std::views::split(','))
        if (!part.empty()) patterns.emplace_back(part.begin(), part.end());
    return patterns;
}

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_patterns_match(const std::string& option,
                          const std::vector<std::string>& patterns,
                          const std::set<std::string>& names,
                          const std::string& whose) {
    for (const std::string& pattern : patterns)
        check(std::ranges::any_of(names, [&](const auto& name) { return matches(pattern, name); }),
              [&] {
                  return Error(
                      "E107",
                      fmt::format("--{} '{}' has no effect", option, printable(pattern)),
                      whose + " of such a name: " + names_text({names.begin(), names.end()}),
                      "drop it, or give one of these names or a pattern for them");
              });
}

std::string names_text(const std::vector<std::string>& names) {
    const std::size_t shown = std::min(names.size(), most_named);
    std::string text = fmt::format("{}", fmt::join(names | std::views::take(shown), ", "));
    if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

}  // namespace lockstep
