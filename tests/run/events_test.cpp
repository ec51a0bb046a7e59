// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/events.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Json line_of(std::string_view name, Json fields) {
    Json line{{"t", 1.5}, {"event", name}};
    line.update(fields);
    return line;
}

TEST(Events, ComeBackAsTheyWereWritten) {
    StepsEvent event{
        .report = {.epoch = 1, .step = 20, .loss = 0.5, .phases = {1, 2, 3}},
        .wall_s = 6.5,
        .gradient_norm = 0.25,
        .comm_busy_s = 2,
        .copy_s = 0.75,
        .data = {.read_s = 3, .bytes_read = 9, .io_threads = 2, .bound = "I/O"},
        .so_far = StartSums{4, 5, 6, {{.from = 2, .messages = 3, .bytes = 9, .seconds = 0.5}}}};
    const Json written = json_of_record(event);
    const auto found = event_in<StepsEvent>(line_of("steps", written));
    ASSERT_TRUE(found);
    EXPECT_EQ(json_of_record(*found), written);
    EXPECT_EQ(found->so_far->save_s, 5);
    EXPECT_EQ(found->so_far->links.at(0).bytes, 9u);
    EXPECT_EQ(found->copy_s, 0.75);
}

TEST(Events, OfEarlierVersionsHaveWhatTheyHave) {
    const auto found = event_in<StepsEvent>(line_of("steps", {{"step", 7}, {"loss", nullptr}}));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->report.step, 7);
    EXPECT_FALSE(found->so_far);
}

TEST(Events, AreToldApartByName) {
    EXPECT_FALSE(event_in<StepsEvent>(line_of("first_step", {{"step", 1}})));
    EXPECT_EQ(event_in<FirstStepEvent>(line_of("first_step", {{"step", 1}}))->step, 1);
}

TEST(Events, AreNoneWhereALineIsDamaged) {
    EXPECT_FALSE(event_in<StepsEvent>(Json()));
    EXPECT_FALSE(event_in<StepsEvent>(line_of("steps", Json::object())));
    EXPECT_FALSE(event_in<StepsEvent>(line_of("steps", {{"step", "7"}})));
    EXPECT_FALSE(event_in<EvaluationEvent>(line_of("evaluation", {{"step", 7}})));
}

TEST(Events, SayWhyAndWhatToDoWhereSomethingIsKnown) {
    EXPECT_EQ(json_of_record(event_of(Error("E310", "a", "b", "c"))).dump(),
              R"({"code":"E310","what":"a","why":"b","fix":"c"})");
    EXPECT_EQ(json_of_record(event_of(Error("E310", "a"))).dump(), R"({"code":"E310","what":"a"})");
}

}  // namespace
}  // namespace lockstep
