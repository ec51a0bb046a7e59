// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
    EXPECT_EQ(shell_word("images=/x/data-1.h5:CHW"), "images=/x/data-1.h5:CHW");
    EXPECT_EQ(shell_word("my scan.h5"), "'my scan.h5'");
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("it's \\ \033[31m\n"), "$'it\\'s \\\\ \\033[31m\\012'");
}

TEST(Split, GivesWhatLiesBetweenTheSeparators) {
    EXPECT_THAT(split("a,bc,d", ','), ElementsAre("a", "bc", "d"));
    EXPECT_THAT(split("a:b,c", ':'), ElementsAre("a", "b,c"));
}

TEST(Split, KeepsWhatIsEmpty) {
    EXPECT_THAT(split("", ','), ElementsAre(""));
    EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
}

}  // namespace
}  // namespace lockstep
