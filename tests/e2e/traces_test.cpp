// SPDX-License-Identifier: Apache-2.0
// `train --trace`, `trace merge`, `metrics`, and what TensorBoard is left, of real runs. `lockstep
// report`: of a run that ends well, in all its forms, and of what it refuses. That it names what
// ruins a run is tested where runs are ruined: logs_test.cpp, tests/soak/causes. In a browser:
// report_in_chromium.
#include "lockstep/core/host_name.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"
#include "lockstep/run/trace.hpp"

#include "program.hpp"

#include <algorithm>
#include <fstream>
#include <set>

#include <sys/stat.h>

namespace lockstep::test {
namespace {

// Of 25 steps an epoch, without evaluations.
ProcessResult traced_train(const fs::path& run, int ranks, int length, const Words& more) {
    return run_lockstep(
        train_words(train_data(), run, "mlp", 24) + on_ranks(ranks) +
        typed("--virtual-ranks 2 --log-every 2 --checkpoint-every never --max-steps %",
              {std::to_string(length)}) +
        more);
}

// One traced run of two ranks, and one of one rank that was not traced, and then was.
class Traces : public testing::Test {
  protected:
    struct Made {
        TempDir folder;
        std::string traced = output_of(traced_train(
            folder / "run", 2, 8, {"--trace", "steps=3-5", "--histograms-every", "4"}));
        std::string plain = output_of(traced_train(folder / "resumed", 1, 8, {}));
    };
    static const Made& made() {
        static const Made made;
        return made;
    }

    static fs::path run() { return made().folder / "run"; }
    static fs::path resumed() { return made().folder / "resumed"; }
    static StepTrace trace_of(int rank) {
        return read_trace(trace_path(RunPaths{run()}.logs(1), rank));
    }
};

TEST_F(Traces, ChangeNoBit) {
    EXPECT_FALSE(printed_hash(made().traced).empty());
    EXPECT_EQ(printed_hash(made().traced), printed_hash(made().plain));
    EXPECT_THAT(made().traced, has("lockstep trace merge"));
    EXPECT_FALSE(fs::exists(trace_path(RunPaths{resumed()}.logs(1), 0)));
}

TEST_F(Traces, HoldStepsWithTheirPhasesWithinThem) {
    for (const int rank : {0, 1}) {
        const StepTrace trace = trace_of(rank);
        EXPECT_EQ(trace.rank, rank);
        EXPECT_EQ(trace.ranks, 2);
        EXPECT_EQ(trace.dropped, 0);
        std::map<std::int64_t, TraceSlice> steps;
        std::map<std::int64_t, std::int64_t> phases_ns;
        std::set<std::string> phases;
        for (const TraceSlice& slice : trace.slices)
            if (slice.kind == SliceKind::step) steps[slice.step] = slice;
        ASSERT_EQ(steps.size(), 3u);
        for (const TraceSlice& slice : trace.slices) {
            if (slice.kind != SliceKind::phase) continue;
            EXPECT_GE(slice.begin_ns, steps.at(slice.step).begin_ns) << slice.name;
            EXPECT_LE(slice.end_ns, steps.at(slice.step).end_ns) << slice.name;
            phases_ns[slice.step] += slice.end_ns - slice.begin_ns;
            phases.insert(slice.name);
        }
        for (const char* phase : {"data", "forward", "backward", "update"})
            EXPECT_TRUE(phases.contains(phase)) << phase;
        const auto budgets = read_step_budgets(step_budgets_path(RunPaths{run()}.logs(1), rank));
        for (const auto& [step, slice] : steps) {
            const double wall_ns = static_cast<double>(slice.end_ns - slice.begin_ns);
            EXPECT_NEAR(static_cast<double>(phases_ns[step]), wall_ns, 500) << "no gap";
            const auto budget = std::ranges::find(budgets, step, &StepBudget::step);
            ASSERT_NE(budget, budgets.end());
            EXPECT_NEAR(budget->wall_s() * 1e9, wall_ns, 0.05 * wall_ns + 1e6);
        }
    }
}

TEST_F(Traces, TellOfTheSameSumsOnAllRanks) {
    using Place = std::pair<std::uint32_t, std::uint64_t>;
    std::map<Place, std::vector<TraceSlice>> sums;
    for (const int rank : {0, 1})
        for (const TraceSlice& slice : trace_of(rank).slices)
            if (slice.kind == SliceKind::collective)
                sums[{slice.channel, slice.seq}].push_back(slice);
    std::set<std::string> names;
    for (const auto& [place, slices] : sums) {
        ASSERT_EQ(slices.size(), 2u) << "number " << place.second;
        EXPECT_EQ(slices[0].name, slices[1].name);
        EXPECT_EQ(slices[0].bytes, slices[1].bytes);
        EXPECT_EQ(slices[0].step, slices[1].step);
        EXPECT_GT(slices[0].bytes, 0u);
        for (const int one : {0, 1})
            EXPECT_GT(slices[one].end_ns, slices[1 - one].begin_ns - 200'000)
                << "no sum is there before all have come";
        names.insert(slices[0].name);
    }
    EXPECT_TRUE(names.contains("reduce 0"));
    EXPECT_TRUE(names.contains("publish"));
}

TEST_F(Traces, AreMergedIntoOneFile) {
    EXPECT_THAT(run_lockstep({"trace", "merge", run()}),
                ends(0, "start 1: steps=3-5 of 2 rank(s), "));
    std::set<std::string> ranks;
    std::map<std::string, std::set<std::string>> arrows;
    const Json json = read_json(run() / "trace-i1.json");
    for (const Json& event : json.at("traceEvents")) {
        const auto what = event.at("ph").get<std::string>();
        if (event.at("name") == "process_name")
            ranks.insert(event.at("args").at("name").get<std::string>());
        if (what == "s" || what == "f") arrows[what].insert(event.at("id").get<std::string>());
    }
    EXPECT_THAT(ranks, ElementsAre(StartsWith("rank 0 on "), StartsWith("rank 1 on ")));
    EXPECT_FALSE(arrows["s"].empty());
    EXPECT_EQ(arrows["s"], arrows["f"]);
}

TEST_F(Traces, EndWithTheRun) {
    EXPECT_THAT(run_lockstep({"trace", "merge", resumed()}),
                ends(66, "error E201: no start of run"));
    EXPECT_THAT(traced_train(resumed(), 1, 8, {"--trace", "steps=7-8"}),
                says("--trace steps=7-8: these steps are done, and this start traces none"));
    ASSERT_THAT(traced_train(resumed(), 1, 10, {"--trace", "steps=9-20"}), ends(0));
    const StepTrace trace = read_trace(trace_path(RunPaths{resumed()}.logs(3), 0));
    std::vector<std::int64_t> steps;
    for (const TraceSlice& slice : trace.slices)
        if (slice.kind == SliceKind::step) steps.push_back(slice.step);
    EXPECT_THAT(steps, ElementsAre(9, 10));
    EXPECT_THAT(run_lockstep({"trace", "merge", resumed()}), says("start 3: "));
    EXPECT_THAT(run_lockstep({"trace", "merge", resumed(), "--incarnation", "1"}), ends(66));
}

TEST_F(Traces, GoWithFiguresForOtherPrograms) {
    const auto metrics = [&](const Words& more) {
        return output_of(run_lockstep(Words{"metrics", run()} + more));
    };
    const std::string csv = metrics({});
    EXPECT_THAT(csv, ContainsRegex("^kind,step,epoch,loss,lr,"));
    for (const int step : {2, 4, 6, 8}) EXPECT_THAT(csv, has(fmt::format("\nreport,{},", step)));
    EXPECT_THAT(metrics({"--format", "jsonl"}), has("{\"kind\":\"report\",\"step\":2,"));
    const fs::path out = run() / "run.prom";
    EXPECT_EQ(metrics({"--format", "prometheus", "--out", out}), "");
    const std::string text = content_of(out);
    EXPECT_THAT(text, has(fmt::format("lockstep_step{{run=\"{}\"}} 8\n", run().string())));
    for (const int rank : {0, 1}) EXPECT_THAT(text, has(fmt::format("rank=\"{}\",host=", rank)));
    EXPECT_THAT(run_lockstep({"metrics", run() / "none"}), ends(66));
    EXPECT_THAT(run_lockstep({"metrics", run(), "--format", "xml"}), ends(64));
}

TEST_F(Traces, GoWithTextsAndHistogramsForTensorBoard) {
    std::string events;
    for (const auto& file : fs::directory_iterator(run()))
        if (file.path().filename().string().starts_with("events.out.tfevents."))
            events += content_of(file.path());
    for (const char* tag : {"run/settings", "| trace | steps=3-5 |", "time/step_ms", "weights/"})
        EXPECT_THAT(events, has(tag));
}

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
