// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"

#include "support/unit.hpp"

#include <cmath>
#include <limits>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

TEST(ParseInteger, TakesTheWholeTextOrNothing) {
    EXPECT_EQ(parse_integer("-42"), -42);
    EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
    for (const auto* text :
         {"", " 1", "1 ", "+1", "1.0", "0x10", "1e3", "9223372036854775808", "-"}) {
        EXPECT_EQ(parse_integer(text), std::nullopt) << text;
    }
}

TEST(ParseReal, TakesFiniteNumbersOnly) {
    EXPECT_EQ(parse_real("0.1"), 0.1);
    EXPECT_EQ(parse_real("-1e-3"), -1e-3);
    EXPECT_EQ(parse_real("4"), 4.0);
    for (const auto* text :
         {"", "nan", "inf", "-inf", "1e999", "1,5", "0.1f", " 1", "1 ", "0x1p3"}) {
        EXPECT_EQ(parse_real(text), std::nullopt) << text;
    }
}

TEST(ParseBytes, KnowsTheUsualWaysAndNoOthers) {
    EXPECT_EQ(parse_bytes("4096"), 4096u);
    EXPECT_EQ(parse_bytes("64KiB"), 64u << 10);
    EXPECT_EQ(parse_bytes("25 MiB"), 25u << 20);
    EXPECT_EQ(parse_bytes("1g"), 1u << 30);
    EXPECT_EQ(parse_bytes("1.5K"), 1536u);
    EXPECT_EQ(parse_bytes("2TB"), 2ull << 40);
    EXPECT_EQ(parse_bytes("7B"), 7u);
    EXPECT_EQ(parse_bytes("0"), 0u);
    for (const std::string& text :
         split("|MiB|-1|1.5|1 X|1KiBs|1e3|99999999999999999999|9999999TiB|1..2", '|')) {
        EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
    }
}

TEST(BytesText, IsShortAndNumbersAreGroupedByCommas) {
    EXPECT_EQ(bytes_text(12), "12 B");
    EXPECT_EQ(bytes_text(64u << 10), "64 KiB");
    EXPECT_EQ(bytes_text(3ull << 29), "1.5 GiB");
    EXPECT_EQ(bytes_text((1u << 20) - 1), "1.0 MiB");
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(grouped(0), "0");
    EXPECT_EQ(grouped(999), "999");
    EXPECT_EQ(grouped(265612), "265,612");
    EXPECT_EQ(grouped(1234567), "1,234,567");
}

RC_GTEST_PROP(ParseInteger, ComesBackFromItsText, (std::int64_t value)) {
    RC_ASSERT(parse_integer(std::to_string(value)) == value);
}

RC_GTEST_PROP(ParseBytes, ComesBackFromAnyUnit, ()) {
    const auto count = *rc::gen::inRange<std::uint64_t>(0, 1u << 20);
    const auto unit = *rc::gen::inRange<std::size_t>(0, 5);
    constexpr const char* names[] = {"", "k", "MiB", "GB", "t"};
    RC_ASSERT(parse_bytes(std::to_string(count) + names[unit]) == count << (10 * unit));
}

TEST(WithoutSignOfNan, KeepsAllNumbers) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(std::signbit(without_sign_of_nan(-nan)));
    EXPECT_TRUE(std::isnan(without_sign_of_nan(-nan)));
    EXPECT_EQ(without_sign_of_nan(-1.5), -1.5);
}

RC_GTEST_PROP(BytesText, NeverReachesTheNextUnit, (std::uint64_t any)) {
    const auto bytes = any >> *rc::gen::inRange(14, 64);
    const auto text = bytes_text(bytes);
    RC_ASSERT(std::stod(text) < 1024);
}

RC_GTEST_PROP(Grouped, IsTheNumberWithoutItsCommas, (std::uint64_t value)) {
    auto text = grouped(value);
    std::erase(text, ',');
    RC_ASSERT(text == std::to_string(value));
}

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
    EXPECT_EQ(shell_word("images=/x/data-1.h5:CHW"), "images=/x/data-1.h5:CHW");
    EXPECT_EQ(shell_word("my scan.h5"), "'my scan.h5'");
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("it's \\ \033[31m\n"), "$'it\\'s \\\\ \\033[31m\\012'");
}

TEST(Split, GivesWhatLiesBetweenTheSeparatorsAlsoWhereItIsEmpty) {
    EXPECT_THAT(split("a,bc,d", ','), ElementsAre("a", "bc", "d"));
    EXPECT_THAT(split("a:b,c", ':'), ElementsAre("a", "b,c"));
    EXPECT_THAT(split("", ','), ElementsAre(""));
    EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
}

}  // namespace
}  // namespace lockstep
