// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/metrics.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::content_of;

std::string line(std::int64_t step, const std::string& text = "") {
    return Json{{"step", step}, {"text", text}}.dump() + "\n";
}

TEST(MetricsFile, AppendsWholeLines) {
    const test::TempDir folder;
    MetricsFile file(folder / "metrics.jsonl", 0);
    file.append({{"step", 1}, {"loss", 0.5}});
    file.append({{"step", 2}, {"loss", 0.25}});
    EXPECT_EQ(content_of(folder / "metrics.jsonl"),
              "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
}

TEST(MetricsFile, CutsStepsThatWillBeDoneAgain) {
    const test::TempDir folder;
    const auto path = folder.file("m", line(100) + line(200) + line(200, "test") + line(300));
    MetricsFile(path, 200).append({{"step", 300}});
    EXPECT_EQ(content_of(path), line(100) + line(200) + line(200, "test") + "{\"step\":300}\n");
}

TEST(MetricsFile, CutsALineThatIsNotWhole) {
    const test::TempDir folder;
    const auto path = folder.file("m", line(100) + "{\"step\":150,\"lo");
    MetricsFile(path, 200);
    EXPECT_EQ(content_of(path), line(100));
}

TEST(MetricsFile, CutsZerosThatACrashLeftBehind) {
    const test::TempDir folder;
    const auto path = folder.file("m", line(100) + std::string(5000, '\0') + "\n[1]\n");
    MetricsFile(path, 200);
    EXPECT_EQ(content_of(path), line(100));
}

TEST(MetricsFile, BecomesEmptyWhenNothingIsToKeep) {
    const test::TempDir folder;
    const auto path = folder.file("m", line(100) + line(200));
    MetricsFile(path, 0);
    EXPECT_EQ(content_of(path), "");
}

TEST(MetricsFile, RefusesAFolder) {
    const test::TempDir folder;
    EXPECT_EQ(test::caught_code([&] { MetricsFile(folder.path(), 0); }), "E402");
}

RC_GTEST_PROP(MetricsFile, KeepsExactlyTheStepsUpToTheResumedOne, ()) {
    const auto steps = *rc::gen::inRange(0, 60);
    const auto resumed = *rc::gen::inRange(0, 70);
    const auto width = *rc::gen::inRange(0, 9000);
    const auto torn = *rc::gen::inRange(0, 20);
    const test::TempDir folder;
    std::string all, expected;
    for (int step = 1; step <= steps; ++step) {
        const auto text = line(step, std::string(static_cast<std::size_t>(width), 'x'));
        all += text;
        if (step <= resumed) expected += text;
    }
    const auto path =
        folder.file("m", all + std::string("{\"step\":1,\"x\":\"yyyyyyy\"").substr(0, torn));
    MetricsFile(path, resumed);
    RC_ASSERT(content_of(path) == expected);
}

}  // namespace
}  // namespace lockstep
