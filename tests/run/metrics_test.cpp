// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/metrics.hpp"

#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"

#include "support/unit.hpp"

#include <limits>
#include <sstream>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

std::string line(std::int64_t step, const std::string& text = "") {
    return Json{{"step", step}, {"text", text}}.dump() + "\n";
}

TEST(MetricsFile, AppendsWholeLines) {
    const TempDir folder;
    MetricsFile file(folder / "metrics.jsonl", 0);
    file.append({{"step", 1}, {"loss", 0.5}});
    file.append({{"step", 2}, {"loss", 0.25}});
    EXPECT_EQ(content_of(folder / "metrics.jsonl"),
              "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
}

/// What is left of a file with `content` where a run resumes at `resumed_step`.
std::string left_of(const std::string& content, std::int64_t resumed_step) {
    const TempDir folder;
    const auto path = folder.file("m", content);
    MetricsFile(path, resumed_step);
    return content_of(path);
}

TEST(MetricsFile, CutsStepsThatWillBeDoneAgain) {
    const TempDir folder;
    const auto path = folder.file("m", line(100) + line(200) + line(200, "test") + line(300));
    MetricsFile(path, 200).append({{"step", 300}});
    EXPECT_EQ(content_of(path), line(100) + line(200) + line(200, "test") + "{\"step\":300}\n");
}

TEST(MetricsFile, CutsWhatIsNotWhole) {
    EXPECT_EQ(left_of(line(100) + "{\"step\":150,\"lo", 200), line(100));
    EXPECT_EQ(left_of(line(100) + std::string(5000, '\0') + "\n[1]\n", 200), line(100))
        << "zeros that a crash left behind";
    EXPECT_EQ(left_of(line(100) + line(200), 0), "") << "nothing is to keep";
}

TEST(MetricsFile, RefusesAFolder) {
    const TempDir folder;
    EXPECT_EQ(caught_code([&] { MetricsFile(folder.path(), 0); }), "E402");
}

RC_GTEST_PROP(MetricsFile, KeepsExactlyTheStepsUpToTheResumedOne, ()) {
    const auto steps = *rc::gen::inRange(0, 60);
    const auto resumed = *rc::gen::inRange(0, 70);
    const auto width = *rc::gen::inRange(0, 9000);
    const auto torn = *rc::gen::inRange(0, 20);
    std::string all, expected;
    for (int step = 1; step <= steps; ++step) {
        const auto text = line(step, std::string(static_cast<std::size_t>(width), 'x'));
        all += text;
        if (step <= resumed) expected += text;
    }
    all += std::string("{\"step\":1,\"x\":\"yyyyyyy\"").substr(0, torn);
    RC_ASSERT(left_of(all, resumed) == expected);
}

/// Two reports and an evaluation between them; two ranks of two steps.
RunFigures exported_run() {
    RunFigures run{.root = "runs/\"a\"", .incarnation = 2};
    for (const std::int64_t step : {10, 20}) {
        StepsEvent event{.report = {.epoch = 1, .step = step, .loss = 0.5, .lr = 1e-3}};
        event.report.phases[Phase::comm] = 0.25;
        event.wall_s = 2;
        event.data.bound = "read, \"cold\"";
        run.reports.push_back(event);
    }
    run.reports[1].report.loss = std::numeric_limits<double>::quiet_NaN();
    run.reports[1].gradient_norm = 3;
    run.evaluations.push_back({10, 1, {{"test_accuracy", 0.75}}});
    for (const int rank : {0, 1}) {
        RankFigures& figures = run.ranks.emplace_back();
        figures.facts.rank = rank;
        figures.facts.host = "n1";
        StepBudget budget{.step = 20, .phases = {}};
        budget.phases[Phase::wait] = 0.125 + rank;
        figures.steps = {budget, budget};
    }
    return run;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

/// The cells of a line of CSV, without quotes around them.
std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells{""};
    bool is_quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"')
            cells.back() += line[++i];
        else if (line[i] == '"')
            is_quoted = !is_quoted;
        else if (line[i] == ',' && !is_quoted)
            cells.emplace_back();
        else
            cells.back() += line[i];
    }
    return cells;
}

TEST(MetricsCsv, HasARowForEachReportAndEvaluation) {
    const auto lines = lines_of(metrics_csv(exported_run()));
    ASSERT_EQ(lines.size(), 4u);
    const auto columns = cells_of(lines[0]);
    EXPECT_EQ(columns[0], "kind");
    EXPECT_EQ(columns[1], "step");
    const auto value = [&](std::size_t row, const std::string& column) {
        const auto cells = cells_of(lines.at(row));
        EXPECT_EQ(cells.size(), columns.size());
        const auto at = std::find(columns.begin(), columns.end(), column) - columns.begin();
        return cells.at(static_cast<std::size_t>(at));
    };
    EXPECT_EQ(value(1, "kind"), "report");
    EXPECT_EQ(value(2, "kind"), "evaluation");
    EXPECT_EQ(value(3, "step"), "20");
    EXPECT_EQ(value(1, "loss"), "0.5");
    EXPECT_EQ(value(1, "phases.comm"), "0.25");
    EXPECT_EQ(value(1, "data.bound"), "read, \"cold\"");
    EXPECT_EQ(value(1, "gradient_norm"), "");
    EXPECT_EQ(std::stod(value(3, "gradient_norm")), 3);
    EXPECT_EQ(value(2, "test_accuracy"), "0.75");
    EXPECT_EQ(value(2, "loss"), "");
    EXPECT_EQ(value(3, "loss"), "") << "not a number";
}

TEST(Metrics, LetNoTerminalEscapeThroughInAnyForm) {
    RunFigures run = exported_run();
    const std::string foreign =
        "\033]0;x\007\xc2\x9b"
        "2J\u202e\x9b\r\nend";
    run.reports[0].data.bound = foreign;
    run.evaluations[0].figures["test_" + foreign] = 1;
    run.ranks[0].facts.host = foreign;
    for (const std::string& text :
         {metrics_csv(run), metrics_jsonl(run), metrics_prometheus(run)}) {
        EXPECT_EQ(printable_lines(text), text);
        EXPECT_THAT(text, HasSubstr("end"));
    }
    const auto line = parse_json(lines_of(metrics_jsonl(run))[0], "line");
    EXPECT_EQ(line.at("data").at("bound"), foreign) << "JSON has escapes for all";
    EXPECT_THAT(metrics_csv(run), HasSubstr(",\"test_?]0;x??2J???\nend\""));
}

TEST(MetricsJsonl, HasTheSameRows) {
    const auto lines = lines_of(metrics_jsonl(exported_run()));
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(parse_json(lines[1], "line").at("kind"), "evaluation");
    EXPECT_EQ(parse_json(lines[2], "line").at("step"), 20);
}

TEST(MetricsPrometheus, IsTheNewestOfEachFamily) {
    const std::string text = metrics_prometheus(exported_run());
    EXPECT_THAT(text,
                has("# HELP lockstep_step Newest step that was reported.\n"
                    "# TYPE lockstep_step gauge\n"
                    "lockstep_step{run=\"runs/\\\"a\\\"\"} 20\n",
                    "lockstep_loss{run=\"runs/\\\"a\\\"\"} NaN\n",
                    ",figure=\"test_accuracy\"} 0.75\n",
                    "lockstep_step_phase_seconds{run=\"runs/\\\"a\\\"\",rank=\"1\","
                    "host=\"n1\",phase=\"wait\"} 1.125\n"));
    std::map<std::string, int> families;
    for (const std::string& line : lines_of(text))
        if (line.starts_with("# TYPE ")) ++families[line];
    for (const auto& [family, count] : families) EXPECT_EQ(count, 1) << family;
    EXPECT_TRUE(text.ends_with('\n'));
}

TEST(MetricsPrometheus, LeavesOutWhatIsNotKnown) {
    const std::string text = metrics_prometheus({.root = "a"});
    EXPECT_THAT(
        lines_of(text),
        ElementsAre(HasSubstr("# HELP"), HasSubstr("# TYPE"), "lockstep_start{run=\"a\"} 0"));
    EXPECT_EQ(metrics_jsonl({.root = "a"}), "");
    EXPECT_THAT(text, Not(HasSubstr("loss")));
}

}  // namespace
}  // namespace lockstep
