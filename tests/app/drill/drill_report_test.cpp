// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "drill/drill.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

FaultReport passed() {
    return {.name = "killed-rank",
            .done = "kill -9 of rank 1",
            .expectations = {expect_text("exit code", "76", "76")},
            .seconds = 3};
}

FaultReport failed() {
    return {.name = "preempt",
            .done = "TERM",
            .expectations = {expect_text("exit code", "75", "75"),
                             expect_text("left behind", "nothing", "process 71")}};
}

FaultReport skipped() {
    return {.name = "node-loss", .why_skipped = "it needs two nodes"};
}

DrillPage page_of(std::vector<FaultReport> faults) {
    return {.host = "n1",
            .when = "2026-01-31T12:34:56.789Z",
            .steps = 2000,
            .parameters = "abc",
            .faults = std::move(faults)};
}

TEST(FaultReport, PassesWhereAllIsAsExpectedAndSomethingWasAlsoWhenItComesBackFromJson) {
    EXPECT_EQ(passed().end(), FaultEnd::passed);
    EXPECT_EQ(failed().end(), FaultEnd::failed);
    EXPECT_EQ(skipped().end(), FaultEnd::skipped);
    EXPECT_EQ(FaultReport{.name = "preempt"}.end(), FaultEnd::failed);
    for (const FaultReport& report : {passed(), failed(), skipped()}) {
        const FaultReport back = deserialize<FaultReport>(serialize(report), "test");
        EXPECT_EQ(serialize(back), serialize(report));
        EXPECT_EQ(back.end(), report.end());
    }
}

TEST(DrillPage, TellsWhatWasExpectedAndWhatWasFoundAndLetsNoEscapeThrough) {
    const std::string text = page_text(page_of({passed(), failed(), skipped()}));
    EXPECT_THAT(text, HasSubstr("# Lockstep drill: 1 of 2 faults ended as they should, 1 skipped"));
    EXPECT_THAT(text, HasSubstr("| killed-rank | passed | 3.0s |"));
    EXPECT_THAT(text, HasSubstr("## preempt: failed\nTERM\n\n- exit code: 75\n"));
    EXPECT_THAT(text, HasSubstr("- **left behind: process 71**, expected: nothing\n"));
    EXPECT_THAT(text, HasSubstr("## node-loss: skipped\nit needs two nodes\n"));
    FaultReport report = failed();
    report.done = "\x1b[31mred";
    EXPECT_EQ(page_text(page_of({report})).find('\x1b'), std::string::npos);
}

TEST(Drill, FailsByTheNameOfWhatFailedOrWhereNothingWasRehearsed) {
    const auto said = [](std::vector<FaultReport> faults) {
        return caught_text([&] { check_drill(page_of(std::move(faults))); });
    };
    EXPECT_EQ(said({passed(), skipped()}), "");
    EXPECT_THAT(said({passed(), failed()}),
                HasSubstr("error E740: 1 of 2 faults did not end as they should: preempt"));
    EXPECT_THAT(said({skipped()}), HasSubstr("error E741: "));
}

}  // namespace
}  // namespace lockstep
