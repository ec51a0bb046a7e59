// SPDX-License-Identifier: Apache-2.0
#include "look/look_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(LookText, GoesOnInFurtherLinesOfANarrowTerminal) {
    const std::vector<std::string> parts{"data", "u8 [60,000, 28, 28]", "", "contiguous"};
    EXPECT_EQ(wrapped(parts, 2, 80), "  data  u8 [60,000, 28, 28]  contiguous\n");
    EXPECT_EQ(wrapped(parts, 2, 30), "  data  u8 [60,000, 28, 28]\n      contiguous\n");
    EXPECT_EQ(wrapped(parts, 0, 1), "data\n    u8 [60,000, 28, 28]\n    contiguous\n")
        << "what is longer stays whole";
}

TEST(LookText, ShowsEachGroupOnce) {
    using Lines = std::pair<std::string, std::size_t>;
    EXPECT_EQ(group_lines("/x", ""), Lines("", 0));
    EXPECT_EQ(group_lines("/a/b/x", ""), Lines("a/\n  b/\n", 2));
    EXPECT_EQ(group_lines("/a/b/y", "/a/b/x"), Lines("", 2));
    EXPECT_EQ(group_lines("/a/c/x", "/a/b/x"), Lines("  c/\n", 2));
    EXPECT_EQ(group_lines("/a\x1b[2J/x", "").first.find('\x1b'), std::string::npos);
    EXPECT_EQ(group_lines("images", ""), Lines("", 0));
}

TEST(LookText, DrawsABarForEachClass) {
    EXPECT_EQ(histogram_text({{"cat", 1000}, {"dog", 1}, {"no\x1b", 0}}, 80),
              "  cat  1,000  ########################################\n"
              "  dog      1  #\n"
              "  no?      0  \n");
    EXPECT_EQ(histogram_text({{"0", 4}, {"1", 2}}, 10), "  0  4  ##\n  1  2  #\n");
    const std::string many = histogram_text(std::vector<ClassCount>(100, {"7", 1}), 20);
    EXPECT_THAT(many, testing::EndsWith("\n  and 80 more\n"));
    EXPECT_EQ(std::ranges::count(many, '\n'), 21);
}

}  // namespace
}  // namespace lockstep
