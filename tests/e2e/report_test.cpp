// SPDX-License-Identifier: Apache-2.0
// `lockstep report`: of a run that ends well, in all its forms, and of what it refuses. That it
// names what ruins a run is tested where runs are ruined: logs_test.cpp, tests/soak/causes. In a
// browser: report_in_chromium.
#include "lockstep/core/host_name.hpp"

#include "program.hpp"

#include <fstream>

#include <sys/stat.h>

namespace lockstep::test {
namespace {

// One run of two ranks, 30 steps long.
class ReportOfRun : public testing::Test {
  protected:
    static fs::path beside(const std::string& name) {
        static const TempDir folder;
        static const std::string trained = output_of(run_lockstep(
            train_words(train_data(), folder / "run", "mlp", 24) + on_ranks(2) +
            typed("--test-data % --evaluate-every 10steps --log-every 5 --virtual-ranks 4 "
                  "--max-steps 30",
                  {test_data()})));
        return folder / name;
    }
    static fs::path run() { return beside("run"); }

    static ProcessResult report(const Words& more = {}) {
        return run_lockstep(Words{"report", run()} + more);
    }
    static Json report_as_json(const fs::path& of) {
        return parse_json(output_of(run_lockstep({"report", of, "--format", "json"})), "report");
    }
};

TEST_F(ReportOfRun, SaysInTextHowItWent) {
    const std::string text = report().output;
    EXPECT_THAT(text,
                has(": complete: 30 steps in ",
                    "  model             mlp\n",
                    "  batch             24\n",
                    fmt::format("2 on {}\n", host_name()),
                    "\nplacement\n  rank  node ",
                    "  test accuracy ",
                    "over 29 steps of start 1",
                    "\nstarts: goodput ",
                    "next: lockstep status " + run().string()));
    EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST_F(ReportOfRun, HasInJsonWhatItsFilesHave) {
    const Json json = report_as_json(run());
    EXPECT_TRUE(json.at("cause").is_null()) << json.at("cause");
    EXPECT_EQ(json.at("facts").at("virtual ranks (V)"), "4");
    EXPECT_EQ(json.at("placement").size(), 2u);
    const Json& loss = json.at("charts").at(0);
    ASSERT_EQ(loss.at("title"), "loss");
    EXPECT_EQ(loss.at("curves").at(0).at("points").size(), 6u);
    EXPECT_EQ(loss.at("curves").at(1).at("points").at(2).at("samples"), 30 * 24);
    ASSERT_EQ(json.at("ranks").size(), 2u);
    EXPECT_EQ(json.at("ranks").at(1).at("host"), host_name());
    EXPECT_GT(json.at("ranks").at(1).at("phases_s").at("backward").get<double>(), 0);
    EXPECT_EQ(json.at("heat_map").at("rows").size(), 2u);
    EXPECT_EQ(json.at("status").at("phase"), "complete");
}

TEST_F(ReportOfRun, IsAPageInTheRunOrWhereItIsWanted) {
    EXPECT_THAT(report({"--format", "html"}), says("/report.html ("));
    const fs::path page = run() / "report.html";
    EXPECT_THAT(content_of(page), has("<path class=\"line s0\""));
    struct stat facts {};
    ASSERT_EQ(::stat(page.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    EXPECT_THAT(report({"--format", "markdown", "--out", beside("a.md")}), ends(0));
    EXPECT_THAT(content_of(beside("a.md")), has("\n## Where a step goes\n"));
    EXPECT_EQ(::stat(beside("a.md").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(ReportOfRun, RefusesWhatItDoesNotKnow) {
    EXPECT_THAT(report({"--format", "pdf"}), says("error E103: --format is 'pdf'", "markdown"));
    EXPECT_THAT(report({"--incarnation", "2"}), says("error E102: --incarnation is 2"));
    EXPECT_THAT(run_lockstep({"report", beside("none")}), ends(66));
    EXPECT_THAT(run_lockstep({"report", train_data()}), says("error E688"));
    EXPECT_THAT(run_lockstep({"report"}), says("error E105"));
}

TEST_F(ReportOfRun, SaysWhereItCannotWrite) {
    EXPECT_THAT(report({"--out", beside("none") / "a.html", "--format", "html"}),
                fails("none/a.html"));
    EXPECT_THAT(report({"--out", beside("run")}), fails());
    EXPECT_TRUE(fs::is_directory(beside("run")));
    for (const auto& entry : fs::directory_iterator(beside(".")))
        EXPECT_THAT(entry.path().string(), Not(has(".tmp-"))) << "nothing half is left";
}

TEST_F(ReportOfRun, PassesOverWhatIsDamaged) {
    const fs::path copy = beside("damaged");
    fs::copy(run(), copy, fs::copy_options::recursive);
    std::ofstream(copy / "metrics.jsonl", std::ios::app) << "{\"step\": \"no\"}\n\xff\xfe{\"st";
    std::ofstream(copy / "logs/i1/rank-00001.steps") << "not steps";
    const Json json = report_as_json(copy);
    EXPECT_EQ(json.at("charts").at(0).at("curves").at(0).at("points").size(), 6u);
    EXPECT_EQ(json.at("ranks").at(0).at("steps"), 29);
    EXPECT_EQ(json.at("ranks").at(1).at("steps"), 0);
    EXPECT_THAT(json.at("findings").dump(), has("the steps of rank 1 are not known"));
    fs::remove_all(copy / "logs");
    EXPECT_THAT(report_as_json(copy).at("findings").dump(), has("no rank recorded its steps"));
}

}  // namespace
}  // namespace lockstep::test
