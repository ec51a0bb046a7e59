// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;
using testing::HasSubstr;
using Library = nlohmann::ordered_json;

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

// The text of lockstep's JSON values is the library's own, byte for byte: files of older versions
// are written anew as they were.
const std::string documents[] = {
    "{}",
    "[]",
    "[[],{},[[]],{\"a\":{}}]",
    R"({"b":1,"a":[true,null,false,-0,0,-0.0,-1,18446744073709551615,-9223372036854775808]})",
    R"([0.1,1e300,1e-300,5e-324,1.7976931348623157e308,0.30000000000000004,1e16,123456789.125,1.0])",
    R"({"text":"a\"b\\c\/\b\f\n\r\t\u0001\u007fé€𝄞\ud834\udd1e","":""})",
    R"({"config":{"lr":{"value":"1e-3","origin":"--lr"}},"shape":[3,32,32],"nested":[[1],[2,[3]]]})",
};

TEST(JsonText, IsTheLibrarysAtEveryIndent) {
    for (const std::string& text : documents)
        for (const int indent : {-1, 0, 1, 2, 4})
            EXPECT_EQ(parse_json(text, "m").dump(indent), Library::parse(text).dump(indent))
                << text;
}

TEST(JsonText, WritesEveryDoubleAsTheLibraryDoes) {
    const double special[] = {0.0,
                              -0.0,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::denorm_min(),
                              std::numeric_limits<double>::max()};
    for (const double number : special)
        EXPECT_EQ(Json(number).dump(), Library(number).dump()) << number;
    std::uint64_t bits = 1;
    for (int i = 0; i < 5'000; ++i) {
        bits = bits * 6364136223846793005ULL + 1442695040888963407ULL;
        const auto number = std::bit_cast<double>(bits);
        const std::string text = Json(number).dump();
        ASSERT_EQ(text, Library(number).dump());
        if (std::isfinite(number)) {
            ASSERT_EQ(parse_json(text, "m").get<double>(), number);
        }
    }
}

TEST(JsonText, KeepsBytesThatAreNotUtf8) {
    const std::string texts[] = {"\xff",
                                 "caf\xe9",
                                 "a\xc3",
                                 "\xe2\x82",
                                 "ok\xf0\x9f",
                                 "\xed\xa0\x80",
                                 "\xc0\xaf",
                                 "\xf4\x90\x80\x80",
                                 "\xee\xbe\x80",
                                 "\xee\xee\xbe\x80\xbf",
                                 "\"\x80\\"};
    for (const std::string& text : texts) {
        const Json value{{text, {text, "é\n𝄞"}}};
        const std::string written = value.dump(1);
        EXPECT_EQ(parse_json(written, "m"), value) << written;
        EXPECT_NO_THROW(Library::parse(written)) << written;
    }
    EXPECT_EQ(Json("caf\xe9\"").dump(), R"("caf\uefe9\"")");
    EXPECT_NE(Json("caf\xe9").dump(), Json("caf\xe8").dump());
}

TEST(JsonText, WritesUtf8AsTheLibraryDoes) {
    for (const char* text :
         {"é", "\xc2\x9b[0m", "\x7f", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xee\xbd\xbf"})
        EXPECT_EQ(Json(text).dump(), Library(text).dump());
}

TEST(JsonText, BracesBuildWhatTheLibraryBuilds) {
    EXPECT_EQ((Json{{"a", 1}, {"b", {1, 2}}, {"c", {}}, {"d", {{"e", "f"}}}}.dump()),
              (Library{{"a", 1}, {"b", {1, 2}}, {"c", {}}, {"d", {{"e", "f"}}}}.dump()));
    EXPECT_EQ((Json{"code", "what"}.dump()), (Library{"code", "what"}.dump()));
    EXPECT_EQ((Json{{"a", 1}, {2, 3}}.dump()), (Library{{"a", 1}, {2, 3}}.dump()));
    const std::vector<std::string> words{"x"};
    EXPECT_EQ((Json{{"w", words}, {"n", 1.5f}, {"u", 7u}}.dump()),
              (Library{{"w", words}, {"n", 1.5f}, {"u", 7u}}.dump()));
}

TEST(JsonText, SortedKeysAreTheOtherKindOfTheLibrarys) {
    for (const std::string& text : documents) {
        Json json = parse_json(text, "m");
        json.sort_keys();
        EXPECT_EQ(json.dump(), nlohmann::json::parse(text).dump());
    }
}

TEST(JsonValue, ComparesNumbersByValue) {
    EXPECT_EQ(Json(1), Json(1u));
    EXPECT_EQ(Json(1), Json(1.0));
    EXPECT_NE(Json(-1), Json(std::numeric_limits<std::uint64_t>::max()));
    EXPECT_NE(Json(1), Json("1"));
    EXPECT_NE(Json(1), Json(true));
    EXPECT_EQ((Json{{"a", 1}}), parse_json("{\"a\":1}", "m"));
    EXPECT_NE(parse_json(R"({"a":1,"b":2})", "m"), parse_json(R"({"b":2,"a":1})", "m"));
}

TEST(JsonValue, ConvertsNothingSilently) {
    using test::caught_code;
    EXPECT_EQ(caught_code([] { static_cast<void>(Json(300).get<std::int8_t>()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json(-1).get<unsigned>()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json(1.0).get<int>()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json("1").get<double>()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json(1).get<std::string>()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json::object().at("gone")); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json{1}.at(1)); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json(1).items()); }), "E222");
    EXPECT_EQ(caught_code([] { static_cast<void>(Json("text").begin()); }), "E222");
    EXPECT_EQ(caught_code([] { Json(1).push_back(2); }), "E222");
}

TEST(TryParse, GivesNothingForACutLine) {
    EXPECT_FALSE(try_parse_json("{\"a\":"));
    EXPECT_FALSE(try_parse_json(""));
    EXPECT_FALSE(try_parse_json(std::string(1u << 20, '[')));
    EXPECT_EQ(try_parse_json("{\"a\":1}").value(), (Json{{"a", 1}}));
}

}  // namespace
}  // namespace lockstep
