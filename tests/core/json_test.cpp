// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;
using testing::HasSubstr;

std::string nested(int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
}

std::string parse_error_of(const std::string& text) {
    return caught_text([&] { parse_json(text, "m.json"); });
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
    EXPECT_EQ(parse_json(R"({"b": 1, "a": [true, null]})", "m").dump(),
              R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, NamesOriginAndPlace) {
    const auto text = parse_error_of("{\"a\": 1,\n\"b\" 2}");
    EXPECT_THAT(text, HasSubstr("E222: 'm.json' makes no sense as JSON"));
    EXPECT_THAT(text, HasSubstr("line 2"));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
    for (const auto* text : {"", "{", "[1,]", "nul", "\"\xff\"", "{} x", "01", "{\"a\":1e999}"}) {
        EXPECT_THAT(parse_error_of(text), HasSubstr("E222")) << text;
    }
}

TEST(ParseJson, GuardsItsDepth) {
    EXPECT_EQ(parse_error_of(nested(64)), "");
    EXPECT_THAT(parse_error_of(nested(65)), HasSubstr("nested deeper than 64 levels"));
    EXPECT_THAT(parse_error_of(std::string(1u << 20, '[')), HasSubstr("nested deeper"));
    EXPECT_EQ(caught_code([] { parse_json("[[1]]", "m", 1); }), "E222");
}

TEST(ParseJson, GuardsItsMemory) {
    std::string values = "[0";
    for (int i = 0; i < 1'500'000; ++i) values += ",0";
    EXPECT_THAT(parse_error_of(values + "]"), HasSubstr("more than 1500000 values"));
    EXPECT_THAT(parse_error_of('"' + std::string(32 << 20, 'a') + '"'),
                HasSubstr("more than 32 MiB"));
    std::string keys = "{";
    for (int i = 0; i <= 100'000; ++i) keys += fmt::format("\"{}\":0,", i);
    EXPECT_THAT(parse_error_of(keys + "\"a\":0}"), HasSubstr("an object of more than 100000 keys"));
}

TEST(ParseJson, RefusesAKeyTwice) {
    EXPECT_THAT(parse_error_of(R"({"a":1,"b":{"a":2},"a":3})"),
                HasSubstr("key \"a\" is there twice"));
    EXPECT_EQ(parse_error_of(R"([{"a":1},{"a":2},{"b":{"a":1},"a":2}])"), "");
}

TEST(ReadJson, IsBoundedInSize) {
    const test::TempDir folder;
    const auto path = folder.file("big.json", "[" + std::string(1000, ' ') + "]");
    EXPECT_EQ(read_json(path, 2000), Json::array());
    EXPECT_EQ(caught_code([&] { read_json(path, 100); }), "E406");
    EXPECT_EQ(caught_code([&] { read_json(folder / "none.json"); }), "E201");
}

}  // namespace
}  // namespace lockstep
