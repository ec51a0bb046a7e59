// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/record.hpp"

#include "support/caught.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

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
    return test::caught_text([&] { static_cast<void>(read(json)); });
}

TEST(Record, WritesInTheOrderOfItsDescription) {
    EXPECT_EQ(json_of_record(example()).dump(), example_text);
}

TEST(Record, ReadsWhatItWrote) {
    const Note note = read(parse_json(example_text, "n.json"));
    EXPECT_EQ(json_of_record(note).dump(), example_text);
    EXPECT_EQ(note.width, 80);
}

TEST(Record, LeavesWhatEarlierVersionsDidNotWrite) {
    Json json = parse_json(example_text, "n.json");
    json.erase("answered");
    EXPECT_EQ(read(json).answered, "nobody");
    json.erase("text");
    EXPECT_THAT(test::caught_text([&] { static_cast<void>(read(json)); }),
                HasSubstr("'text' is missing"));
}

TEST(Record, NamesFileAndFieldOfWhatDoesNotFit) {
    EXPECT_THAT(error_with("step", "seven"), HasSubstr("E222: 'n.json'"));
    EXPECT_THAT(error_with("step", "seven"), HasSubstr("'step' is \"seven\" (string)"));
    EXPECT_THAT(error_with("exit", std::int64_t{1} << 40), HasSubstr("'exit' is 1099511627776"));
    EXPECT_THAT(error_with("bytes", -1), HasSubstr("'bytes'"));
    EXPECT_THAT(error_with("bytes", std::uint64_t{1} << 62), HasSubstr("below 2^62"));
    EXPECT_THAT(error_with("settings", 1), HasSubstr("'settings' is 1 (number), not an object"));
    EXPECT_THAT(error_with("mood", "sad"), HasSubstr("not one of calm, busy"));
    EXPECT_THAT(error_with("chapter", "iv"), HasSubstr("'chapter' is \"iv\" (string), not roman"));
    EXPECT_THAT(error_with("lines", Json::array()), "");
    EXPECT_EQ(test::caught_code([] { Record(Json::array(), "n.json"); }), "E222");
}

TEST(Record, NamesThePlaceWithin) {
    EXPECT_THAT(error_with("lines", {{{"name", "a"}}, Json{{"name", 1}}}),
                HasSubstr("E222: 'n.json: lines[1]'"));
    EXPECT_THAT(error_with("shapes", {{"a", {1, "x"}}}), HasSubstr("'a[1]' is \"x\""));
    EXPECT_THAT(error_with("shapes", {{"a", 1}}), HasSubstr("not an array"));
}

TEST(Record, RefusesUnknownKeysWhereAsked) {
    Json json = parse_json(example_text, "n.json");
    EXPECT_EQ(read(json, UnknownKeys::refused).chapter, 2);
    json["lines"][0]["rat"] = 1.0;
    EXPECT_EQ(read(json).lines.size(), 2u);
    const auto text =
        test::caught_text([&] { static_cast<void>(read(json, UnknownKeys::refused)); });
    EXPECT_THAT(text, HasSubstr("'n.json: lines[0]' has an unknown key 'rat'"));
    EXPECT_THAT(text, HasSubstr("did you mean 'rate'"));
}

TEST(Record, WritesNullForWhatIsNotFinite) {
    const Reading reading{std::numeric_limits<double>::infinity()};
    const Json json = json_of_record(reading);
    EXPECT_EQ(json.dump(), R"({"value":null})");
    EXPECT_TRUE(std::isnan(record_from_json<Reading>(json, "r").value));
    EXPECT_EQ(record_from_json<Reading>({{"value", 2}}, "r").value, 2);
    EXPECT_EQ(record_from_json<Reading>(Json::object(), "r").value, 7);
}

TEST(Record, RefusesFormatsItDoesNotKnow) {
    EXPECT_EQ(error_with("version", 1), "");
    EXPECT_THAT(error_with("version", 3), HasSubstr("E305: 'n.json' has format 3"));
    EXPECT_THAT(error_with("version", 0), HasSubstr("E305"));
}

std::string error_of_field(const char* value) {
    return test::caught_text(
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
