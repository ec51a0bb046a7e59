// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/text_table.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TextTable, AlignsColumnsAndLeavesEmptyOnesOut) {
    EXPECT_EQ(text_table({{"ranks", "gpu", "step"}, {"1", "", "54 ms"}, {"16", "", "6 ms"}},
                         Align::right,
                         Align::left),
              "  ranks  step\n"
              "      1  54 ms\n"
              "     16  6 ms\n");
    EXPECT_EQ(text_table({{"a", "b"}, {"10", "200"}}, Align::left, Align::right, ""),
              "a     b\n10  200\n");
}

TEST(TextTable, KeepsEscapesFromTerminals) {
    EXPECT_EQ(text_table({{"a"}, {"\033[31m"}}, Align::left, Align::left, ""), "a\n?[31m\n");
}

TEST(TextTable, WritesNumbersShort) {
    EXPECT_EQ(seconds_text(0), "0 s");
    EXPECT_EQ(seconds_text(707), "707 s");
    EXPECT_EQ(seconds_text(0.05413), "54.13 ms");
    EXPECT_EQ(seconds_text(8e-7), "0.8 us");
    EXPECT_EQ(percent_text(0.8108), "81.1 %");
    EXPECT_EQ(ranks_count_text(1), "1 rank");
    EXPECT_EQ(ranks_count_text(4), "4 ranks");
}

TEST(Wrapped, BreaksBetweenWordsAndNotWithinThem) {
    EXPECT_EQ(wrapped("one two three", 2, 7), "one two\n  three");
    EXPECT_EQ(wrapped("one two three", 2, 6), "one\n  two\n  three");
    EXPECT_EQ(wrapped("eleventh on", 0, 4), "eleventh\non");
    EXPECT_EQ(wrapped("", 2, 7), "");
}

}  // namespace
}  // namespace lockstep
