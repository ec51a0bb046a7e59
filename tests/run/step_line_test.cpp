// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/step_line.hpp"

#include "lockstep/run/events.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

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
    EXPECT_EQ(step_line(report_of_the_book()),
              "step 1200 | loss 0.4183 | lr 4.0e-2 | 14.2k samples/s | data 1 % comm 4 % wait 2 % "
              "| mem 1.2 GiB");
}

TEST(StepLine, HasCopiesWhereSomethingWaitsForThem) {
    auto report = report_of_the_book();
    report.phases[Phase::copy] = 0.5;
    EXPECT_THAT(step_line(report), HasSubstr("| data 1 % copy 5 % comm 4 % wait 2 % |"));
}

TEST(StepLine, LeavesUnknownMemoryOut) {
    auto report = report_of_the_book();
    report.memory_bytes = 0;
    EXPECT_THAT(step_line(report), Not(HasSubstr("mem")));
}

TEST(StepLine, BearsAReportOfNothing) {
    EXPECT_EQ(step_line(StepReport{}),
              "step 0 | loss 0.0000 | lr 0.0e+0 | 0.00 samples/s | data 0 % comm 0 % wait 0 %");
}

TEST(StepLine, ShowsALossThatIsNoNumber) {
    StepReport report;
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.lr = std::numeric_limits<double>::infinity();
    EXPECT_THAT(step_line(report), HasSubstr("loss nan | lr inf"));
    EXPECT_TRUE(json_of_record(report)["loss"].is_null());
}

TEST(StepLine, WritesLearningRatesShortly) {
    StepReport report;
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

}  // namespace
}  // namespace lockstep
