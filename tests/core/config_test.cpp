// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::error_of;
using testing::EndsWith;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
  protected:
    Config config_of(std::string_view text) const {
        return read_config(folder_.file("train.toml", text));
    }

    std::string code_of(std::string_view text) const {
        return caught_code([&] { config_of(text); });
    }

    test::TempDir folder_;
};

TEST_F(ConfigTest, FlattensTablesToDottedKeys) {
    const auto config = config_of(
        "batch-size = 64\n[optimizer]\nlr = 0.1\nnesterov = true\nname = \"sgd\"\n"
        "[optimizer.schedule]\nsteps = 5\n");
    EXPECT_EQ(config.size(), 5u);
    EXPECT_EQ(config.at("batch-size").value, ConfigValue(std::int64_t{64}));
    EXPECT_EQ(config.at("optimizer.lr").value, ConfigValue(0.1));
    EXPECT_EQ(config.at("optimizer.nesterov").value, ConfigValue(true));
    EXPECT_EQ(config.at("optimizer.name").value, ConfigValue(std::string("sgd")));
    EXPECT_EQ(config.at("optimizer.schedule.steps").value, ConfigValue(std::int64_t{5}));
}

TEST_F(ConfigTest, RemembersWhereAValueStands) {
    const auto config = config_of("# a comment\n\n  lr = 0.1\n");
    EXPECT_THAT(config.at("lr").origin, testing::MatchesRegex(".*train.toml:3:[0-9]+"));
}

TEST_F(ConfigTest, IsEmptyWithoutSettings) {
    EXPECT_TRUE(config_of("# nothing\n").empty());
}

TEST_F(ConfigTest, PointsACaretAtASyntaxError) {
    const Error error = error_of([&] { config_of("epochs = 2\nlr = = 0.1\n"); });
    EXPECT_EQ(error.code(), "E110");
    EXPECT_THAT(error.what(), HasSubstr("train.toml:2:6"));
    EXPECT_THAT(error.why(), EndsWith("    lr = = 0.1\n         ^"));
}

TEST_F(ConfigTest, AlignsTheCaretBehindTabsAndLetters) {
    const Error error = error_of([&] { config_of("\tname = \"\xc3\xa4\xc3\xb6\" x\n"); });
    EXPECT_THAT(error.why(), EndsWith("    \tname = \"\xc3\xa4\xc3\xb6\" x\n    \t            ^"));
}

TEST_F(ConfigTest, RefusesAKeyTwice) {
    EXPECT_EQ(code_of("lr = 0.1\nlr = 0.2\n"), "E110");
}

TEST_F(ConfigTest, RefusesListsAndDatesAndNumbersThatAreNone) {
    for (const auto value : {"[1, 2]", "2026-01-31", "nan", "inf"})
        EXPECT_EQ(code_of(fmt::format("x = {}\n", value)), "E112") << value;
}

TEST_F(ConfigTest, RefusesWhatIsNotText) {
    EXPECT_EQ(code_of(std::string_view("a = 1\0", 6)), "E115");
    EXPECT_EQ(code_of("a = \"\xff\xfe\"\n"), "E115");
    EXPECT_EQ(code_of("\x89HDF\r\n\x1a\n"), "E115");
}

TEST_F(ConfigTest, RefusesWhatIsNoReadableFile) {
    EXPECT_EQ(caught_code([&] { read_config(folder_ / "none.toml"); }), "E116");
    EXPECT_EQ(caught_code([&] { read_config(folder_.path()); }), "E116");
}

std::string dotted(std::size_t parts) {
    std::string key = "a";
    for (std::size_t i = 1; i < parts; ++i) key += i % 3 == 0 ? ".a" : i % 3 == 1 ? " . a" : ".'a'";
    return key;
}

std::string nested_tables(int tables) {
    return tables == 0 ? "b = 1" : dotted(20) + " = {" + nested_tables(tables - 1) + "}";
}

TEST_F(ConfigTest, RefusesKeysThatOverflowTheParsersStack) {
    for (const std::size_t parts : {33u, 20'000u, 100'000u}) {
        EXPECT_EQ(code_of("[" + dotted(parts) + "]\nb = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of("[[" + dotted(parts) + "]]\nb = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of(dotted(parts) + " = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of("x = {" + dotted(parts) + " = 1}\n"), "E110") << parts;
        EXPECT_EQ(code_of("x = {y = \"\"\"a\"\"\"\", " + dotted(parts) + " = 1}"), "E110") << parts;
    }
    EXPECT_EQ(code_of(nested_tables(200)), "E110");
    for (const std::size_t depth : {33u, 100'000u})
        EXPECT_EQ(code_of("a = " + std::string(depth, '[')), "E110") << depth;
    EXPECT_THAT(error_of([&] { config_of("a = 1\n\n" + dotted(99) + " = 1\n"); }).what(),
                HasSubstr("train.toml:3: "));
}

TEST_F(ConfigTest, CountsNoDotsAndBracketsOfTextsAndComments) {
    const std::string dots(200, '.'), brackets(200, '[');
    EXPECT_EQ(
        config_of("a = \"" + dots + "\\\"" + brackets + "\" # " + dots + brackets + "\nb = '''\n" +
                  dots + "\n''" + brackets + "'''\n[c]\n" + dotted(31) + " = 1.5\n")
            .size(),
        3u);
    EXPECT_EQ(code_of(dotted(32) + " = 1\n"), "");
}

TEST_F(ConfigTest, RefusesLongKeysInAFewWords) {
    const Error error = error_of([&] { config_of(std::string(500'000, 'k') + " = 1\n"); });
    EXPECT_EQ(error.code(), "E111");
    EXPECT_LT(error.text().size(), 500u);
    const std::string key(400'000, 'k');
    const Error twice = error_of([&] { config_of(key + " = 1\n" + key + " = 2\n"); });
    EXPECT_EQ(twice.code(), "E110");
    EXPECT_LT(twice.text().size(), 1000u);
}

TEST_F(ConfigTest, SaysThatAPipeIsNoFile) {
    ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(test::caught_text([&] { read_config(folder_ / "pipe"); }),
                testing::AllOf(HasSubstr("E116: "), HasSubstr("a pipe")));
}

TEST(ConfigText, ParsesBackToTheSameValue) {
    const test::TempDir folder;
    for (const ConfigValue& value :
         {ConfigValue(true), ConfigValue(std::int64_t{-3}), ConfigValue(0.1), ConfigValue(1e-7)}) {
        const auto path = folder.file("c.toml", "k = " + config_text(value) + "\n");
        EXPECT_EQ(read_config(path).at("k").value, value) << config_text(value);
    }
    EXPECT_EQ(config_text(std::string("sgd")), "sgd");
}

TEST(ConfigTypeName, IsInWords) {
    EXPECT_EQ(config_type_name(true), "true/false");
    EXPECT_EQ(config_type_name(std::int64_t{1}), "a whole number");
    EXPECT_EQ(config_type_name(0.5), "a real number");
    EXPECT_EQ(config_type_name(std::string("x")), "text");
}

}  // namespace
}  // namespace lockstep
