// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/events.hpp"
#include "lockstep/run/step_budget.hpp"
#include "lockstep/run/step_line.hpp"

#include "support/unit.hpp"

#include <fstream>
#include <limits>

#include <rapidcheck/gtest.h>

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

TEST(Events, AreToldApartByNameAndNoneWhereALineIsDamaged) {
    EXPECT_FALSE(event_in<StepsEvent>(line_of("first_step", {{"step", 1}})));
    EXPECT_EQ(event_in<FirstStepEvent>(line_of("first_step", {{"step", 1}}))->step, 1);
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

StepReport report_of_the_book() {
    StepReport report;
    report.epoch = 1;
    report.step = 1200;
    report.loss = 0.41832;
    report.lr = 0.04;
    report.samples_per_s = 14180;
    report.phases[Phase::data] = 0.1;
    report.phases[Phase::comm] = 0.4;
    report.phases[Phase::wait] = 0.2;
    report.phases[Phase::forward] = 9.3;
    report.memory_bytes = 1288490189;
    return report;
}

TEST(StepLine, LooksAsTheDesignHasIt) {
    StepReport report = report_of_the_book();
    EXPECT_EQ(step_line(report),
              "step 1200 | loss 0.4183 | lr 4.0e-2 | 14.2k samples/s | data 1 % comm 4 % wait 2 % "
              "| mem 1.2 GiB");
    report.phases[Phase::copy] = 0.5;
    EXPECT_THAT(step_line(report), HasSubstr("| data 1 % copy 5 % comm 4 % wait 2 % |"));
    report.memory_bytes = 0;
    EXPECT_THAT(step_line(report), Not(HasSubstr("mem"))) << "unknown";
}

TEST(StepLine, BearsAReportOfNothing) {
    EXPECT_EQ(step_line(StepReport{}),
              "step 0 | loss 0.0000 | lr 0.0e+0 | 0.00 samples/s | data 0 % comm 0 % wait 0 %");
}

TEST(StepLine, WritesNumbersShortlyAlsoWhatIsNone) {
    StepReport report;
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.lr = std::numeric_limits<double>::infinity();
    EXPECT_THAT(step_line(report), HasSubstr("loss nan | lr inf"));
    EXPECT_TRUE(json_of_record(report)["loss"].is_null());
    report.loss = -report.loss;
    EXPECT_THAT(step_line(report), HasSubstr("loss nan |")) << "its sign means nothing";
    report.lr = 1.25e-12;
    EXPECT_THAT(step_line(report), HasSubstr("lr 1.2e-12 "));
    report.lr = 100;
    EXPECT_THAT(step_line(report), HasSubstr("lr 1.0e+2 "));
}

TEST(StepRecord, NamesEveryPhase) {
    const auto record = json_of_record(report_of_the_book());
    EXPECT_EQ(record["step"], 1200);
    EXPECT_EQ(record["phases"]["comm"], 0.4);
    EXPECT_EQ(record["phases"].size(), static_cast<std::size_t>(Phase::count));
}

TEST(RateText, HasThreeDigits) {
    EXPECT_EQ(rate_text(0.123), "0.12");
    EXPECT_EQ(rate_text(9.99), "9.99");
    EXPECT_EQ(rate_text(42.4), "42");
    EXPECT_EQ(rate_text(873.2), "873");
    EXPECT_EQ(rate_text(999.6), "1.00k");
    EXPECT_EQ(rate_text(1310), "1.31k");
    EXPECT_EQ(rate_text(14180), "14.2k");
    EXPECT_EQ(rate_text(141800), "142k");
    EXPECT_EQ(rate_text(1310000), "1.31M");
    EXPECT_EQ(rate_text(-1), "0.00");
}

TEST(LiveLine, HasABarAndCutsAtTheTerminalsEdge) {
    EXPECT_EQ(live_line(0.5, 75, "text", 80), "[##########----------]  50 % eta 1m15s | text");
    EXPECT_EQ(live_line(0.5, -1, "text", 80), "[##########----------]  50 % | text");
    EXPECT_EQ(live_line(0.5, 75, "text", 30), "[##########----------]  50 % e");
    EXPECT_EQ(live_line(0.5, 75, "a longer text", 29), " 50 % eta 1m15s | a longer te");
    EXPECT_EQ(live_line(0.5, 75, "text", 19), " 50 % eta 1m15s | t");
    EXPECT_EQ(live_line(0.5, 75, "text", 0), "");
}

RC_GTEST_PROP(LiveLine, IsNeverWiderThanTheTerminal, (double fraction, double eta)) {
    const auto columns = *rc::gen::inRange<std::size_t>(0, 200);
    const auto line = live_line(fraction, eta, "step 1 | loss 1", columns);
    RC_ASSERT(line.size() <= columns);
}

TEST(CutToColumns, CutsNoCharacterInTwo) {
    EXPECT_EQ(cut_to_columns("Zürich", 6), "Züric");
    EXPECT_EQ(cut_to_columns("Zürich", 7), "Zürich");
    EXPECT_EQ(cut_to_columns("Zürich", 2), "Z");
    EXPECT_EQ(cut_to_columns("ü", 1), "");
}

StepBudget budget_of(std::int64_t step) {
    StepBudget budget{.step = step, .ended_unix_s = 1e9 + static_cast<double>(step), .phases = {}};
    budget.phases[Phase::forward] = 0.25;
    budget.phases[Phase::wait] = 0.5;
    return budget;
}

class StepBudgets : public testing::Test {
  protected:
    /// Writes steps `first` to `last`.
    void write(std::int64_t first,
               std::int64_t last,
               std::size_t capacity = StepBudgetFile::most_steps) const {
        StepBudgetFile file(path_, capacity);
        for (std::int64_t step = first; step <= last; ++step) file.add(budget_of(step));
    }

    const TempDir folder_;
    const fs::path path_ = step_budgets_path(folder_.path(), 3);
};

TEST_F(StepBudgets, AreReadBackAsTheyWereWritten) {
    EXPECT_EQ(path_.filename(), "rank-00003.steps");
    write(11, 110);
    const auto steps = read_step_budgets(path_);
    ASSERT_EQ(steps.size(), 100u);
    EXPECT_EQ(steps.front().step, 11);
    EXPECT_EQ(steps.back().step, 110);
    EXPECT_EQ(steps.back().ended_unix_s, 1e9 + 110);
    EXPECT_EQ(steps.back().wall_s(), 0.75);
    EXPECT_EQ(steps.back().own_s(), 0.25);
}

TEST_F(StepBudgets, KeepTheNewestStepsInABoundedFile) {
    write(1, 250, 100);
    EXPECT_EQ(fs::file_size(path_), 64u * 101);
    const auto steps = read_step_budgets(path_);
    ASSERT_EQ(steps.size(), 100u);
    EXPECT_EQ(steps.front().step, 151);
    EXPECT_EQ(steps.back().step, 250);
}

TEST_F(StepBudgets, CanBeReadASecondLaterWhileARunGoesOn) {
    StepBudgetFile file(path_);
    for (std::int64_t step = 1; step <= 12; ++step) {
        StepBudget budget = budget_of(step);
        budget.ended_unix_s = 1e9 + 0.25 * static_cast<double>(step);
        file.add(budget);
    }
    EXPECT_EQ(read_step_budgets(path_).size(), 10u) << "after 1.25 s and 2.5 s";
}

TEST_F(StepBudgets, AreOfWholeStepsThoughTheyCameInParts) {
    {
        StepBudgetFile file(path_);
        file.add(budget_of(1));
        file.add(budget_of(2));
        StepBudget rest = budget_of(2);
        rest.ended_unix_s += 5;
        file.add(rest);
    }
    const auto steps = read_step_budgets(path_);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[1].wall_s(), 1.5);
    EXPECT_EQ(steps[1].ended_unix_s, 1e9 + 7);
}

TEST_F(StepBudgets, AreEmptyWithoutAFileAndRefuseAForeignOne) {
    EXPECT_TRUE(read_step_budgets(path_).empty());
    write_file_atomically(path_, std::string(200, 'x'));
    EXPECT_EQ(caught_code([&] { read_step_budgets(path_); }), "E222");
    fs::remove(path_);
    fs::create_symlink(path_.filename(), path_);
    EXPECT_EQ(caught_code([&] { read_step_budgets(path_); }), "E402");
}

/// Writes `value` over what is at byte `offset` of a file.
template <class Value>
void overwrite(const fs::path& path, std::size_t offset, Value value) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST_F(StepBudgets, LeaveOutWhatDamageMadeSenseless) {
    write(1, 6);
    const auto place = [](std::size_t number) { return 64 * number; };
    overwrite(path_, place(1) + 16, std::numeric_limits<float>::quiet_NaN());
    overwrite(path_, place(2) + 16, std::numeric_limits<float>::infinity());
    overwrite(path_, place(3) + 20, -1e30F);
    overwrite(path_, place(4) + 8, std::numeric_limits<double>::quiet_NaN());
    overwrite(path_, place(5), std::int64_t{-5});
    const auto steps = read_step_budgets(path_);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps.front().step, 6);
    EXPECT_EQ(steps.front().wall_s(), 0.75);
}

}  // namespace
}  // namespace lockstep
