// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/step_budget.hpp"

#include "support/unit.hpp"

#include <fstream>
#include <limits>
#include <sstream>

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
    const auto earlier = event_in<StepsEvent>(line_of("steps", {{"step", 7}, {"loss", nullptr}}));
    ASSERT_TRUE(earlier) << "of a version that wrote less";
    EXPECT_EQ(earlier->report.step, 7);
    EXPECT_FALSE(earlier->so_far);
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

TEST(StepLine, WritesNumbersShortlyAlsoWhatIsNone) {
    StepReport report;
    EXPECT_EQ(step_line(report),
              "step 0 | loss 0.0000 | lr 0.0e+0 | 0.00 samples/s | data 0 % comm 0 % wait 0 %");
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

class StepBudgets : public InFolder {
  protected:
    /// Writes steps `first` to `last`.
    void write(std::int64_t first,
               std::int64_t last,
               std::size_t capacity = StepBudgetFile::most_steps) const {
        StepBudgetFile file(path_, capacity);
        for (std::int64_t step = first; step <= last; ++step) file.add(budget_of(step));
    }

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
