// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/record.hpp"

#include "support/unit.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Library = nlohmann::ordered_json;

std::string nested(int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
}

std::string parse_error_of(const std::string& text) {
    return caught_text([&] { parse_json(text, "m.json"); });
}

TEST(ParseJson, KeepsTheOrderOfKeysAndRefusesWhatIsNotJsonByOriginAndPlace) {
    EXPECT_EQ(parse_json(R"({"b": 1, "a": [true, null]})", "m").dump(),
              R"({"b":1,"a":[true,null]})");
    const auto text = parse_error_of("{\"a\": 1,\n\"b\" 2}");
    EXPECT_THAT(text, has("E222: 'm.json' makes no sense as JSON", "line 2"));
    for (const auto* bad : {"", "{", "[1,]", "nul", "\"\xff\"", "{} x", "01", "{\"a\":1e999}"}) {
        EXPECT_THAT(parse_error_of(bad), HasSubstr("E222")) << bad;
    }
    EXPECT_THAT(parse_error_of(R"({"a":1,"b":{"a":2},"a":3})"),
                HasSubstr("key \"a\" is there twice"));
    EXPECT_EQ(parse_error_of(R"([{"a":1},{"a":2},{"b":{"a":1},"a":2}])"), "");
}

TEST(ParseJson, GuardsItsDepthAndItsMemory) {
    EXPECT_EQ(parse_error_of(nested(64)), "");
    EXPECT_THAT(parse_error_of(nested(65)), HasSubstr("nested deeper than 64 levels"));
    EXPECT_THAT(parse_error_of(std::string(1u << 20, '[')), HasSubstr("nested deeper"));
    std::string values = "[0";
    for (int i = 0; i < 1'500'000; ++i) values += ",0";
    EXPECT_THAT(parse_error_of(values + "]"), HasSubstr("more than 1500000 values"));
    EXPECT_THAT(parse_error_of('"' + std::string(32 << 20, 'a') + '"'),
                HasSubstr("more than 32 MiB"));
    std::string keys = "{";
    for (int i = 0; i <= 100'000; ++i) keys += fmt::format("\"{}\":0,", i);
    EXPECT_THAT(parse_error_of(keys + "\"a\":0}"), HasSubstr("an object of more than 100000 keys"));
}

TEST(ReadJson, IsBoundedInSizeAndGivesNothingForACutLine) {
    const TempDir folder;
    const auto path = folder.file("big.json", "[" + std::string(1000, ' ') + "]");
    EXPECT_EQ(read_json(path, 2000), Json::array());
    EXPECT_EQ(caught_code([&] { read_json(path, 100); }), "E406");
    EXPECT_EQ(caught_code([&] { read_json(folder / "none.json"); }), "E201");
    EXPECT_FALSE(try_parse_json("{\"a\":"));
    EXPECT_FALSE(try_parse_json(""));
    EXPECT_FALSE(try_parse_json(std::string(1u << 20, '[')));
    EXPECT_EQ(try_parse_json("{\"a\":1}").value(), (Json{{"a", 1}}));
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

TEST(JsonText, IsTheLibrarysAtEveryIndentAndWithSortedKeys) {
    for (const std::string& text : documents) {
        Json json = parse_json(text, "m");
        for (const int indent : {-1, 0, 1, 2, 4})
            EXPECT_EQ(json.dump(indent), Library::parse(text).dump(indent)) << text;
        json.sort_keys();
        EXPECT_EQ(json.dump(), nlohmann::json::parse(text).dump());
    }
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

TEST(JsonText, KeepsBytesThatAreNotUtf8AndWritesUtf8AsTheLibraryDoes) {
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

enum class Mood { calm, busy };
constexpr std::array<std::string_view, 2> mood_names{"calm", "busy"};

struct Line {
    std::string name;
    std::optional<double> rate;
};

void describe(Record& record, Line& line) {
    record.field("name", line.name);
    record.sparse("rate", line.rate);
}

struct Reading {
    double value = 7;
};

void describe(Record& record, Reading& reading) {
    record.measured("value", reading.value);
}

std::optional<int> parse_roman(std::string_view text) {
    return text == "ii" ? std::optional(2) : std::nullopt;
}

struct Note {
    std::string text = "as it was";
    int exit = 0;
    std::int64_t step = 0;
    std::uint64_t bytes = 0;
    std::uint64_t inode = 0;
    double rate = 0;
    bool is_open = false;
    Mood mood = Mood::calm;
    Json settings = Json::object();
    std::vector<Line> lines;
    std::map<std::string, std::vector<std::int64_t>> shapes;
    Line last;
    int chapter = 0;
    int width = 80;
    std::string answered = "nobody";
};

void describe(Record& record, Note& note) {
    record.mark("format", "note");
    record.version("version", 2);
    record.field("text", note.text);
    record.field("exit", note.exit);
    record.field("step", note.step);
    record.count("bytes", note.bytes);
    record.field("inode", note.inode);
    record.field("rate", note.rate);
    record.field("is_open", note.is_open);
    record.field("mood", note.mood, mood_names);
    record.field("settings", note.settings);
    record.field("lines", note.lines);
    record.field("shapes", note.shapes);
    record.sparse("last", note.last, Line{"end", {}});
    record.text(
        "chapter", note.chapter, [](int n) { return std::string(n, 'i'); }, parse_roman, "roman");
    record.sparse("width", note.width, 80);
    record.later("answered", note.answered);
}

Note example() {
    return {.text = "hello",
            .exit = -3,
            .step = -7,
            .bytes = 9,
            .inode = UINT64_MAX,
            .rate = 0.5,
            .is_open = true,
            .mood = Mood::busy,
            .settings = {{"lr", 0.1}},
            .lines = {{"first", {}}, {"second", 2.5}},
            .shapes = {{"a", {1, 2}}, {"b", {}}},
            .last = {"end", {}},
            .chapter = 2,
            .answered = "me"};
}

const std::string example_text =
    R"({"format":"note","version":2,"text":"hello","exit":-3,"step":-7,"bytes":9,)"
    R"("inode":18446744073709551615,"rate":0.5,"is_open":true,"mood":"busy",)"
    R"("settings":{"lr":0.1},"lines":[{"name":"first"},{"name":"second","rate":2.5}],)"
    R"("shapes":{"a":[1,2],"b":[]},"chapter":"ii","answered":"me"})";

Note read(const Json& json, UnknownKeys unknown_keys = UnknownKeys::ignored) {
    return record_from_json<Note>(json, "n.json", unknown_keys);
}

std::string error_with(const char* key, const Json& value) {
    Json json = parse_json(example_text, "n.json");
    json[key] = value;
    return caught_text([&] { static_cast<void>(read(json)); });
}

TEST(Record, ReadsWhatItWroteInTheOrderOfItsDescription) {
    EXPECT_EQ(json_of_record(example()).dump(), example_text);
    const Note note = read(parse_json(example_text, "n.json"));
    EXPECT_EQ(json_of_record(note).dump(), example_text);
    EXPECT_EQ(note.width, 80);
}

TEST(Record, LeavesWhatEarlierVersionsDidNotWrite) {
    Json json = parse_json(example_text, "n.json");
    json.erase("answered");
    EXPECT_EQ(read(json).answered, "nobody");
    json.erase("text");
    EXPECT_THAT(caught_text([&] { static_cast<void>(read(json)); }),
                HasSubstr("'text' is missing"));
}

TEST(Record, NamesFileFieldAndPlaceWithinOfWhatDoesNotFit) {
    EXPECT_THAT(error_with("step", "seven"), has("E222: 'n.json'", "'step' is \"seven\" (string)"));
    EXPECT_THAT(error_with("exit", std::int64_t{1} << 40), HasSubstr("'exit' is 1099511627776"));
    EXPECT_THAT(error_with("bytes", -1), HasSubstr("'bytes'"));
    EXPECT_THAT(error_with("bytes", std::uint64_t{1} << 62), HasSubstr("below 2^62"));
    EXPECT_THAT(error_with("settings", 1), HasSubstr("'settings' is 1 (number), not an object"));
    EXPECT_THAT(error_with("mood", "sad"), HasSubstr("not one of calm, busy"));
    EXPECT_THAT(error_with("chapter", "iv"), HasSubstr("'chapter' is \"iv\" (string), not roman"));
    EXPECT_THAT(error_with("lines", Json::array()), "");
    EXPECT_EQ(caught_code([] { Record(Json::array(), "n.json"); }), "E222");
    EXPECT_THAT(error_with("lines", {{{"name", "a"}}, Json{{"name", 1}}}),
                HasSubstr("E222: 'n.json: lines[1]'"));
    EXPECT_THAT(error_with("shapes", {{"a", {1, "x"}}}), HasSubstr("'a[1]' is \"x\""));
    EXPECT_THAT(error_with("shapes", {{"a", 1}}), HasSubstr("not an array"));
}

TEST(Record, WritesNullForWhatIsNotFinite) {
    const Reading reading{std::numeric_limits<double>::infinity()};
    const Json json = json_of_record(reading);
    EXPECT_EQ(json.dump(), R"({"value":null})");
    EXPECT_TRUE(std::isnan(record_from_json<Reading>(json, "r").value));
    EXPECT_EQ(record_from_json<Reading>({{"value", 2}}, "r").value, 2);
    EXPECT_EQ(record_from_json<Reading>(Json::object(), "r").value, 7);
}

TEST(Record, RefusesFormatsItDoesNotKnowAndUnknownKeysWhereAsked) {
    EXPECT_EQ(error_with("version", 1), "");
    EXPECT_THAT(error_with("version", 3), HasSubstr("E305: 'n.json' has format 3"));
    EXPECT_THAT(error_with("version", 0), HasSubstr("E305"));
    Json json = parse_json(example_text, "n.json");
    EXPECT_EQ(read(json, UnknownKeys::refused).chapter, 2);
    json["lines"][0]["rat"] = 1.0;
    EXPECT_EQ(read(json).lines.size(), 2u);
    const auto text = caught_text([&] { static_cast<void>(read(json, UnknownKeys::refused)); });
    EXPECT_THAT(text, has("'n.json: lines[0]' has an unknown key 'rat'", "did you mean 'rate'"));
}

std::string error_of_field(const char* value) {
    return caught_text(
        [&] { static_cast<void>(json_field<std::int64_t>(parse_json(value, "m"), "k", "m")); });
}

TEST(JsonField, IsOneMemberOrAnError) {
    EXPECT_EQ(json_field<double>({{"d", 2}}, "d", "m"), 2.0);
    EXPECT_EQ(json_field<std::vector<std::string>>({{"w", Json::array()}}, "w", "m").size(), 0u);
    EXPECT_THAT(error_of_field(R"({"k":"seven"})"), HasSubstr("'k' is \"seven\" (string)"));
    EXPECT_THAT(error_of_field(R"({"k":1.5})"), HasSubstr("E222"));
    EXPECT_THAT(error_of_field(R"({"k":18446744073709551615})"), HasSubstr("E222"));
    EXPECT_THAT(error_of_field("{}"), HasSubstr("'k' is missing"));
    EXPECT_THAT(error_of_field("[]"), HasSubstr("E222"));
}

}  // namespace
}  // namespace lockstep
