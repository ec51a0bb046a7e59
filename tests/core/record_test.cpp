// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/record.hpp"

#include "support/caught.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

enum class Mood { calm, busy };
constexpr std::array<std::string_view, 2> mood_names{"calm", "busy"};

struct Note {
    std::string text = "as it was";
    int exit = 0;
    std::int64_t step = 0;
    std::uint64_t bytes = 0;
    double rate = 0;
    bool is_open = false;
    Mood mood = Mood::calm;
    Json settings = Json::object();
    std::string answered = "nobody";
};

void describe(Record& record, Note& note) {
    record.mark("format", "note");
    record.field("text", note.text);
    record.field("exit", note.exit);
    record.field("step", note.step);
    record.field("bytes", note.bytes);
    record.field("rate", note.rate);
    record.field("is_open", note.is_open);
    record.field("mood", note.mood, mood_names);
    record.field("settings", note.settings);
    record.later("answered", note.answered);
}

Note example() {
    return {.text = "hello",
            .exit = -3,
            .step = -7,
            .bytes = 9,
            .rate = 0.5,
            .is_open = true,
            .mood = Mood::busy,
            .settings = {{"lr", 0.1}},
            .answered = "me"};
}

const std::string example_text =
    R"({"format":"note","text":"hello","exit":-3,"step":-7,"bytes":9,"rate":0.5,"is_open":true,)"
    R"("mood":"busy","settings":{"lr":0.1},"answered":"me"})";

std::string error_with(const char* key, const Json& value) {
    Json json = parse_json(example_text, "n.json");
    json[key] = value;
    return test::caught_text([&] { static_cast<void>(record_from_json<Note>(json, "n.json")); });
}

TEST(Record, WritesInTheOrderOfItsDescription) {
    EXPECT_EQ(json_of_record(example()).dump(), example_text);
}

TEST(Record, ReadsWhatItWrote) {
    const auto note = record_from_json<Note>(parse_json(example_text, "n.json"), "n.json");
    EXPECT_EQ(json_of_record(note).dump(), example_text);
}

TEST(Record, LeavesWhatEarlierVersionsDidNotWrite) {
    Json json = parse_json(example_text, "n.json");
    json.erase("answered");
    EXPECT_EQ(record_from_json<Note>(json, "n.json").answered, "nobody");
    json.erase("text");
    EXPECT_THAT(
        test::caught_text([&] { static_cast<void>(record_from_json<Note>(json, "n.json")); }),
        HasSubstr("'text' is missing"));
}

TEST(Record, NamesFileAndFieldOfWhatDoesNotFit) {
    EXPECT_THAT(error_with("step", "seven"), HasSubstr("E222: 'n.json'"));
    EXPECT_THAT(error_with("step", "seven"), HasSubstr("'step' is \"seven\" (string)"));
    EXPECT_THAT(error_with("exit", std::int64_t{1} << 40), HasSubstr("'exit' is 1099511627776"));
    EXPECT_THAT(error_with("bytes", -1), HasSubstr("'bytes'"));
    EXPECT_THAT(error_with("settings", 1), HasSubstr("'settings' is no object"));
    EXPECT_THAT(error_with("mood", "sad"), HasSubstr("known are calm, busy"));
    EXPECT_EQ(test::caught_code([] { Record(Json::array(), "n.json"); }), "E222");
}

}  // namespace
}  // namespace lockstep
