// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_figures.hpp"

#include "lockstep/run/comparison.hpp"

#include "support/unit.hpp"

#include <cmath>
#include <fstream>

#include <rapidcheck/gtest.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

using testing::Field;

/// Steps of `seconds` each, the first ten times as long; a tenth is Phase::wait.
void write_steps(const fs::path& logs, int rank, double seconds) {
    StepBudgetFile file(step_budgets_path(logs, rank));
    for (std::int64_t step = 1; step <= 5; ++step) {
        StepBudget budget{.step = step, .ended_unix_s = static_cast<double>(step), .phases = {}};
        const double wall_s = seconds * (step == 1 ? 10 : 1);
        budget.phases[Phase::backward] = 0.9 * wall_s;
        budget.phases[Phase::wait] = 0.1 * wall_s;
        file.add(budget);
    }
}

TempDir& make_run(TempDir& folder) {
    folder.file(
        "run.json",
        R"({"format":"lockstep-run","format_version":1,"run_id":"a","created_at":"t","created_by":"u",)"
        R"("contract":{},"deciding":{},"config":{},"versions":{}})");
    folder.file("incarnation", "2\n");
    folder.file(
        "metrics.jsonl",
        R"({"step":5,"epoch":1,"loss":0.5,"lr":0.1,"samples_per_s":100,"phases":{"data":1}})"
        "\n"
        R"({"step":5,"epoch":1,"test_loss":0.7,"test_accuracy":0.9})"
        "\n{\"step\":6,\"lo");
    for (const int rank : {0, 1}) {
        for (const char* start : {"i1", "i2"})
            folder.file(
                fs::path("logs") / start / (rank == 0 ? "rank-00000.jsonl" : "rank-00001.jsonl"),
                R"({"event":"clock","t":1,"rank":0,"host":"n1","start":1,"ahead_s":0,"error_s":0})"
                "\n{\"event\":\"place\",\"t\":1,\"cores\":2,\"sharers\":4}\n"
                R"({"event":"steps","t":1,"step":4,"so_far":{"train_s":1,"save_s":0,"evaluate_s":0}})"
                "\n"
                R"({"event":"steps","t":2,"step":5,"so_far":{"train_s":1,"save_s":0,"evaluate_s":0,)"
                R"("links":[{"from":3,"messages":2,"bytes":7,"seconds":0.5}]}})"
                "\n");
        write_steps(folder / "logs/i1", rank, 1 + rank);
    }
    return folder;
}

TEST(RunFigures, AreOfTheNewestStartThatKeptSteps) {
    TempDir folder;
    const RunFigures run = read_run_figures(make_run(folder).path());
    EXPECT_EQ(run.incarnation, 1);
    ASSERT_EQ(run.ranks.size(), 2u);
    EXPECT_EQ(run.ranks[1].facts.host, "n1");
    EXPECT_EQ(run.ranks[1].steps.size(), 5u);
    ASSERT_TRUE(run.ranks[1].place);
    EXPECT_EQ(run.ranks[1].place->sharers, 4);
    EXPECT_FALSE(run.ranks[1].place->quota);
    ASSERT_EQ(run.ranks[1].links.size(), 1u);
    EXPECT_EQ(run.ranks[1].links[0].from, 3);
    ASSERT_EQ(run.reports.size(), 1u);
    EXPECT_EQ(run.reports[0].report.loss, 0.5);
    ASSERT_EQ(run.evaluations.size(), 1u);
    EXPECT_EQ(run.evaluations[0].figures.at("test_accuracy"), 0.9);
    EXPECT_TRUE(read_run_figures(folder.path(), 2).ranks[0].steps.empty());
}

class ForeignFile : public InFolder {
  protected:
    ForeignFile() {
        make_run(folder_);
        fs::remove(metrics_);
        fs::remove(log_);
    }

    RunFigures figures() const { return read_run_figures(folder_.path(), 1); }

    const fs::path metrics_ = folder_ / "metrics.jsonl",
                   log_ = folder_ / "logs/i1/rank-00000.jsonl";
};

TEST_F(ForeignFile, IsNoPipeAndNoDevice) {
    for (const fs::path& file : {metrics_, log_}) {
        ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
        EXPECT_EQ(caught_code([&] { figures(); }), "E206") << file;
        fs::remove(file);
        fs::create_symlink("/dev/zero", file);
        EXPECT_EQ(caught_code([&] { figures(); }), "E206") << file;
        fs::remove(file);
        make_directories(file);
        EXPECT_EQ(caught_code([&] { figures(); }), "E402") << file;
        fs::remove(file);
    }
}

// A sparse file of a terabyte takes no room and is read as zeros.
TEST_F(ForeignFile, IsReadInPartHoweverLong) {
    const std::string report =
        R"({"step":5,"epoch":1,"loss":0.5,"lr":0.1,"samples_per_s":100,"phases":{"data":1}})"
        "\n";
    for (const fs::path& file : {metrics_, log_}) {
        std::ofstream(file) << report;
        fs::resize_file(file, std::uintmax_t{1} << 40);
        std::ofstream(file, std::ios::app) << '\n' << report;
    }
    const RunFigures run = figures();
    EXPECT_EQ(run.reports.size(), 1u) << "the newest";
    EXPECT_EQ(run.ranks.size(), 2u);
}

TEST_F(ForeignFile, HasLinesOfAnyLength) {
    const std::string report =
        R"({"step":5,"epoch":1,"loss":0.5,"lr":0.1,"samples_per_s":100,"phases":{"data":1}})";
    const std::string longest(1 << 20, ' ');
    std::ofstream(metrics_) << report << '\n'
                            << longest << report << '\n'
                            << longest.substr(report.size()) << report << '\n'
                            << '\n'
                            << report << '\n'
                            << report;
    EXPECT_EQ(figures().reports.size(), 4u) << "all but the one that is too long";
}

TEST(RunFigures, AreWholeButForARankWhoseStepsAreDamaged) {
    TempDir folder;
    make_run(folder).file("logs/i1/rank-00001.steps", "none");
    const RunFigures run = read_run_figures(folder.path());
    EXPECT_EQ(run.ranks[0].steps.size(), 5u);
    EXPECT_TRUE(run.ranks[1].steps.empty());
    EXPECT_NE(run.ranks[1].damage.find("rank-00001.steps"), std::string::npos);
}

TEST(RunFigures, KnowWhatBindsARanksDataByItsNewestReports) {
    const auto report = [](const char* bound, double wait_s) {
        StepsEvent event;
        event.data.bound = bound;
        event.data.wait_s = wait_s;
        event.so_far.emplace();
        Json json = json_of_record(event);
        json["event"] = StepsEvent::name;
        return json.dump() + "\n";
    };
    std::string log = report("decode", 1000);
    while (log.size() < std::size_t{128} << 10) log += report("I/O", 0.1);
    log += report("verify", 0.2);
    TempDir folder;
    make_run(folder).file("logs/i1/rank-00001.jsonl", log);
    const RunFigures run = read_run_figures(folder.path());
    EXPECT_EQ(run.ranks[1].data_bound, "I/O");
    EXPECT_EQ(run.ranks[0].data_bound, "");
}

TEST(MeanStep, LeavesTheFirstStepOut) {
    TempDir folder;
    const RunFigures run = read_run_figures(make_run(folder).path());
    EXPECT_EQ(mean_step(run.ranks[0]).steps, 4);
    EXPECT_NEAR(mean_step(run.ranks[0]).wall_s(), 1, 1e-6);
    EXPECT_NEAR(mean_step(run).wall_s(), 1.5, 1e-6);
    EXPECT_NEAR(mean_step(run).phases[Phase::wait], 0.15, 1e-6);
}

RunRecord record_of(const std::string& config,
                    const std::string& deciding,
                    const std::string& processor = "p") {
    RunRecord record;
    record.config = parse_json(config, "config");
    record.deciding = parse_json(deciding, "deciding");
    record.contract = {{"processor", processor}, {"canary", "of " + processor}, {"threads", 1}};
    record.versions = {{"lockstep", "1"}};
    return record;
}

RunFigures run_with_steps(std::vector<double> seconds, int ranks = 1) {
    RunFigures run;
    for (int rank = 0; rank < ranks; ++rank) {
        run.ranks.emplace_back();
        std::int64_t step = 0;
        for (const double each : seconds) {
            StepBudget budget{.step = ++step};
            budget.phases[Phase::comm] = rank * each;
            budget.phases[Phase::other] = (ranks - rank) * each;
            run.ranks.back().steps.push_back(budget);
        }
    }
    return run;
}

TEST(SettingsThatDiffer, AreDecidingOnesFirstWithTheirOrigins) {
    const RunRecord a = record_of(
        R"({"batch":{"value":"64","origin":"command line"},"np":{"value":"1","origin":"command line"},
            "run":{"value":"a","origin":"command line"},"deadline":{"value":"5","origin":"x"}})",
        R"({"batch":64,"seed":1})");
    const RunRecord b = record_of(
        R"({"batch":{"value":"128","origin":"t.toml:3:1"},"io-threads":{"value":"2","origin":"x"},
            "np":{"value":"1","origin":"command line"},"run":{"value":"b","origin":"command line"}})",
        R"({"batch":128,"seed":1})",
        "q");
    const auto found = settings_that_differ(a, b);
    EXPECT_THAT(found,
                ElementsAre(Field(&SettingDifference::name, "batch"),
                            Field(&SettingDifference::name, "processor"),
                            Field(&SettingDifference::name, "io-threads")));
    EXPECT_EQ(found[0].kind, SettingKind::deciding);
    EXPECT_EQ(found[0].first, "64");
    EXPECT_EQ(found[0].second_origin, "t.toml:3:1");
    EXPECT_EQ(found[1].kind, SettingKind::contract);
    EXPECT_EQ(found[2].kind, SettingKind::free);
    EXPECT_EQ(found[2].first, "");
    EXPECT_TRUE(settings_that_differ(a, a).empty());
    EXPECT_THAT(settings_that_differ(a, record_of("{}", R"({"batch":64,"seed":1})", "q")),
                Contains(Field(&SettingDifference::name, "canary")))
        << "the same settings should have the same";
}

TEST(Scatter, IsThatOfStretchesWhichHangTogether) {
    std::vector<double> steady, drifting;
    for (int i = 0; i < 100; ++i) {
        steady.push_back(i % 2 == 0 ? 1 : 3);
        drifting.push_back(i < 50 ? 1 : 3);
    }
    EXPECT_EQ(scatter_of(steady).mean, 2);
    EXPECT_NEAR(scatter_of(steady).error, 0, 1e-9);
    EXPECT_NEAR(scatter_of(drifting).error, 1 / std::sqrt(9.0), 1e-9);
    EXPECT_EQ(scatter_of({}).count, 0);
    EXPECT_EQ(scatter_of(std::vector<double>{1, 2}).error, 0);
}

RC_GTEST_PROP(Scatter, DoesNotDependOnUnits, ()) {
    std::vector<double> values;
    for (int i = 0; i < *rc::gen::inRange(4, 60); ++i)
        values.push_back(1 + *rc::gen::inRange(0, 1000));
    const Scatter one = scatter_of(values);
    for (double& value : values) value *= 1000;
    const Scatter other = scatter_of(values);
    RC_ASSERT(std::abs(other.mean - 1000 * one.mean) < 1e-6 * other.mean);
    RC_ASSERT(std::abs(other.error - 1000 * one.error) < 1e-6 * other.mean);
}

TEST(Scatter, DecidesWhatCountsAsADifference) {
    EXPECT_TRUE(is_beyond_scatter({10, 1, 50}, {14, 1, 50}));
    EXPECT_FALSE(is_beyond_scatter({10, 1, 50}, {12, 1, 50}));
    EXPECT_FALSE(is_beyond_scatter({10, 0, 2}, {14, 0, 50})) << "two steps tell nothing";
}

TEST(StepScatter, LeavesTheFirstStepOutAndTakesThePhasesOfAllRanks) {
    const RunFigures run = run_with_steps({9, 1, 1, 1, 1}, 2);
    EXPECT_EQ(step_scatter(run).mean, 2);
    EXPECT_EQ(step_scatter(run).count, 4);
    EXPECT_EQ(phase_scatter(run, Phase::comm).mean, 0.5);
    EXPECT_EQ(phase_scatter(run, Phase::other).mean, 1.5);
    EXPECT_EQ(step_scatter(RunFigures()).count, 0);
}

TEST(PhaseScatter, TakesEachStepByItsNumber) {
    RunFigures run = run_with_steps({1, 1, 1, 1}, 2);
    std::vector<StepBudget>& steps = run.ranks[1].steps;
    steps.erase(steps.begin() + 1);  // damaged: steps 3 and 4 are left of it
    steps[1].phases[Phase::comm] = 3;
    EXPECT_EQ(phase_scatter(run, Phase::comm).mean, (0 + 1.5 + 0.5) / 3);
}

TEST(CurveGap, IsAsFarAlongAsBothGoOrNearEnough) {
    const std::vector<CurvePoint> slow{{100, 0.5}, {200, 0.7}, {300, 0.8}};
    const std::vector<CurvePoint> fast{{50, 0.2}, {150, 0.4}, {250, 0.6}};
    const auto gap = curve_gap(slow, fast);
    ASSERT_TRUE(gap);
    EXPECT_EQ(gap->at, 250);
    EXPECT_NEAR(gap->first, 0.75, 1e-12) << "between two evaluations";
    EXPECT_NEAR(gap->difference(), -0.15, 1e-12);
    EXPECT_FALSE(curve_gap(slow, std::vector<CurvePoint>{{50, 0.2}})) << "before the first";
    EXPECT_FALSE(curve_gap(slow, {}));
    const auto near =
        curve_gap(std::vector<CurvePoint>{{60'032, 0.9}}, std::vector<CurvePoint>{{60'416, 0.84}});
    ASSERT_TRUE(near) << "an epoch of each";
    EXPECT_EQ(near->second, 0.84);
}

TEST(EvaluationCurve, CountsSamplesByTheBatch) {
    RunFigures run;
    run.evaluations.push_back({.step = 5, .epoch = 1, .figures = {{"test_accuracy", 0.5}}});
    run.evaluations.push_back({.step = 10, .epoch = 2, .figures = {{"test_loss", 0.1}}});
    const auto curve = evaluation_curve(run, "test_accuracy", 64);
    ASSERT_EQ(curve.size(), 1u);
    EXPECT_EQ(curve[0].at, 320);
    EXPECT_EQ(curve[0].value, 0.5);
}

}  // namespace
}  // namespace lockstep
