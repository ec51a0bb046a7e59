// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;
using testing::HasSubstr;

std::string nested(int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
}

std::string error_of(const std::string& text) {
    return caught_text([&] { parse_json(text, "m.json"); });
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
    EXPECT_EQ(parse_json(R"({"b": 1, "a": [true, null]})", "m").dump(),
              R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, NamesOriginAndPlace) {
    const auto text = error_of("{\"a\": 1,\n\"b\" 2}");
    EXPECT_THAT(text, HasSubstr("E222: 'm.json' makes no sense as JSON"));
    EXPECT_THAT(text, HasSubstr("line 2"));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
    for (const auto* text : {"", "{", "[1,]", "nul", "\"\xff\"", "{} x", "01", "{\"a\":1e999}"}) {
        EXPECT_THAT(error_of(text), HasSubstr("E222")) << text;
    }
}

TEST(ParseJson, GuardsItsDepth) {
    EXPECT_EQ(error_of(nested(64)), "");
    EXPECT_THAT(error_of(nested(65)), HasSubstr("nested deeper than 64 levels"));
    EXPECT_THAT(error_of(std::string(1u << 20, '[')), HasSubstr("nested deeper"));
    EXPECT_EQ(caught_code([] { parse_json("[[1]]", "m", 1); }), "E222");
}

TEST(ParseJson, GuardsItsMemory) {
    std::string values = "[0";
    for (int i = 0; i < 1'500'000; ++i) values += ",0";
    EXPECT_THAT(error_of(values + "]"), HasSubstr("more than 1500000 values"));
    EXPECT_THAT(error_of('"' + std::string(32 << 20, 'a') + '"'), HasSubstr("more than 32 MiB"));
    std::string keys = "{";
    for (int i = 0; i <= 100'000; ++i) keys += fmt::format("\"{}\":0,", i);
    EXPECT_THAT(error_of(keys + "\"a\":0}"), HasSubstr("an object of more than 100000 keys"));
}

TEST(ParseJson, RefusesAKeyTwice) {
    EXPECT_THAT(error_of(R"({"a":1,"b":{"a":2},"a":3})"), HasSubstr("key \"a\" is there twice"));
    EXPECT_EQ(error_of(R"([{"a":1},{"a":2},{"b":{"a":1},"a":2}])"), "");
}

TEST(ReadJson, IsBoundedInSize) {
    const test::TempDir folder;
    const auto path = folder.file("big.json", "[" + std::string(1000, ' ') + "]");
    EXPECT_EQ(read_json(path, 2000), Json::array());
    EXPECT_EQ(caught_code([&] { read_json(path, 100); }), "E406");
    EXPECT_EQ(caught_code([&] { read_json(folder / "none.json"); }), "E201");
}

TEST(JsonField, ReadsEachType) {
    const auto object = parse_json(
        R"({"s":"x","b":true,"u":7,"i":-7,"d":0.5,"whole":2,"l":[1,2],"w":["a"],"r":[0.5,1]})",
        "m");
    EXPECT_EQ(json_field<std::string>(object, "s", "m"), "x");
    EXPECT_EQ(json_field<bool>(object, "b", "m"), true);
    EXPECT_EQ(json_field<std::uint64_t>(object, "u", "m"), 7u);
    EXPECT_EQ(json_field<std::int64_t>(object, "i", "m"), -7);
    EXPECT_EQ(json_field<double>(object, "d", "m"), 0.5);
    EXPECT_EQ(json_field<double>(object, "whole", "m"), 2.0);
    EXPECT_EQ(json_field<std::vector<std::int64_t>>(object, "l", "m"),
              (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(json_field<std::vector<std::string>>(object, "w", "m"),
              (std::vector<std::string>{"a"}));
    EXPECT_EQ(json_field<std::vector<double>>(object, "r", "m"), (std::vector<double>{0.5, 1}));
}

TEST(JsonField, NamesKeyAndTypeOfWhatDoesNotFit) {
    const auto object = parse_json(R"({"n":"seven"})", "m");
    const auto text =
        caught_text([&] { static_cast<void>(json_field<std::int64_t>(object, "n", "m.json")); });
    EXPECT_THAT(text, HasSubstr("m.json"));
    EXPECT_THAT(text, HasSubstr("'n' is \"seven\" (string)"));
    EXPECT_THAT(caught_text([&] { static_cast<void>(json_field<bool>(object, "gone", "m.json")); }),
                HasSubstr("'gone' is missing"));
}

template <class T>
std::string code_for(const char* value) {
    const auto object = parse_json(std::string(R"({"k":)") + value + "}", "m");
    return caught_code([&] { static_cast<void>(json_field<T>(object, "k", "m")); });
}

TEST(JsonField, ConvertsNothingSilently) {
    EXPECT_EQ(code_for<std::int64_t>("1.5"), "E222");
    EXPECT_EQ(code_for<std::int64_t>("true"), "E222");
    EXPECT_EQ(code_for<std::int64_t>("18446744073709551615"), "E222");
    EXPECT_EQ(code_for<std::uint64_t>("-1"), "E222");
    EXPECT_EQ(code_for<std::uint64_t>("18446744073709551615"), "E222");
    EXPECT_EQ(code_for<bool>("1"), "E222");
    EXPECT_EQ(code_for<double>("\"0.5\""), "E222");
    EXPECT_EQ(code_for<std::string>("5"), "E222");
    EXPECT_EQ(code_for<std::vector<std::int64_t>>("[1.5]"), "E222");
    EXPECT_EQ(code_for<std::vector<std::int64_t>>("[true]"), "E222");
    EXPECT_EQ(code_for<std::vector<std::int64_t>>("[18446744073709551615]"), "E222");
    EXPECT_EQ(code_for<std::vector<std::int64_t>>("3"), "E222");
    EXPECT_EQ(code_for<std::vector<std::string>>("[1]"), "E222");
    EXPECT_EQ(code_for<std::vector<double>>("[\"1\"]"), "E222");
}

TEST(JsonField, NeedsAnObject) {
    EXPECT_EQ(caught_code([] { static_cast<void>(json_field<bool>(Json::array(), "k", "m")); }),
              "E222");
}

}  // namespace
}  // namespace lockstep
