// SPDX-License-Identifier: Apache-2.0
// Matchers for how a command ended, and what it printed.
#pragma once

#include "lockstep/core/process.hpp"

#include <concepts>
#include <ostream>
#include <string>

#include <gmock/gmock.h>

namespace lockstep {

inline void PrintTo(const ProcessResult& result, std::ostream* out) {
    *out << "exit code " << result.exit_code << ", output:\n" << result.output;
}

namespace test {

using OutputMatcher = testing::Matcher<const std::string&>;
using EndMatcher = testing::Matcher<const ProcessResult&>;

/// A text stands for "has this text", and a matcher for itself.
template <class Text>
OutputMatcher output_matcher(const Text& text) {
    if constexpr (std::convertible_to<Text, std::string>)
        return testing::HasSubstr(std::string(text));
    else
        return text;
}

/// Matches an output that fits each of `texts`, which are texts or matchers.
template <class... Texts>
OutputMatcher has(const Texts&... texts) {
    return testing::AllOf(testing::_, output_matcher(texts)...);
}

/// Matches a command whose output has `texts`.
template <class... Texts>
EndMatcher says(const Texts&... texts) {
    return testing::Field("output", &ProcessResult::output, has(texts...));
}

/// Matches a command that ends with `exit_code`, and says `texts`.
template <class... Texts>
EndMatcher ends(const testing::Matcher<int>& exit_code, const Texts&... texts) {
    return testing::AllOf(testing::Field("exit_code", &ProcessResult::exit_code, exit_code),
                          says(texts...));
}

/// Matches a command that fails, and says `texts`.
template <class... Texts>
EndMatcher fails(const Texts&... texts) {
    return ends(testing::Ne(0), texts...);
}

/// The output of a command, which must end with `exit_code`.
inline std::string output_of(const ProcessResult& ended,
                             const testing::Matcher<int>& exit_code = 0) {
    EXPECT_THAT(ended, ends(exit_code));
    return ended.output;
}

}  // namespace test
}  // namespace lockstep
