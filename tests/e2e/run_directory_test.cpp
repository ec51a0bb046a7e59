// SPDX-License-Identifier: Apache-2.0
// What a finished run leaves: every file, its mode, and what is promised about its content.
#include "lockstep/run/events.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/step_budget.hpp"

#include "program.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::test {
namespace {

// One run on two ranks that all tests of this file look at.
class RunDirectory : public testing::Test {
  protected:
    struct Run {
        TempDir folder;
        fs::path path = folder / "run";
        fs::path config = folder.file("train.toml", "epochs = 2\nbatch = 60\nmodel = \"cnn\"\n");
        std::string output = output_of(run_lockstep(
            typed("train --np 2 --oversubscribe --config % --data % --test-data % --run % --model "
                  "mlp --log-every 5 --checkpoint-every 8steps --checkpoint-mode blocking",
                  {config, train_data(), test_data(), path}),
            {{"LOCKSTEP_LR", "0.002"}}));
    };
    static const Run& run() {
        static const Run run;
        return run;
    }

    static const fs::path& path() { return run().path; }
    static const std::string& output() { return run().output; }
    static fs::path log(int rank, const std::string& extension) {
        return path() / "logs/i1" / fmt::format("rank-{:05}.{}", rank, extension);
    }
};

std::set<std::string> names_below(const fs::path& root) {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(root))
        names.insert(fs::relative(entry.path(), root).string());
    return names;
}

TEST_F(RunDirectory, HoldsWhatIsPromisedAndNothingElse) {
    const Words files = typed(
        "run.json data.json incarnation run.lock state.json latest metrics.jsonl confusion.csv "
        "ckpt logs logs/i1 logs/i1/flight");
    std::set<std::string> expected(files.begin(), files.end());
    for (const char* rank : {"rank-00000", "rank-00001"}) {
        expected.insert(fmt::format("logs/i1/flight/{}.ring", rank));
        for (const char* kind : {"log", "jsonl", "steps"})
            expected.insert(fmt::format("logs/i1/{}.{}", rank, kind));
    }
    for (const char* step : {"ckpt/step-000008", "ckpt/step-000016", "ckpt/step-000020"})
        for (const char* file : {"",
                                 "/manifest.json",
                                 "/shard-00000-of-00002.safetensors",
                                 "/shard-00001-of-00002.safetensors"})
            expected.insert(std::string(step) + file);
    std::set<std::string> found = names_below(path());
    const auto events = std::erase_if(
        found, [](const std::string& name) { return name.starts_with("events.out.tfevents."); });
    EXPECT_EQ(events, 1u);
    EXPECT_EQ(found, expected);
}

TEST_F(RunDirectory, IsForItsOwnerAlone) {
    EXPECT_EQ(fs::status(path()).permissions(), fs::perms(0700));
    for (const auto& entry : fs::recursive_directory_iterator(path()))
        EXPECT_EQ(entry.status().permissions(), fs::perms(entry.is_directory() ? 0700 : 0600))
            << entry.path();
}

TEST_F(RunDirectory, SaysThatTheRunIsComplete) {
    EXPECT_EQ(state_of(path()), "complete, step 20, exit 0");
    EXPECT_EQ(content_of(path() / "incarnation"), "1\n");
    EXPECT_EQ(content_of(path() / "run.lock"), "");
}

TEST_F(RunDirectory, RecordsWhereEverySettingComesFrom) {
    const Json record = read_json(path() / "run.json");
    EXPECT_THAT(record.at("run_id").get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
    const Json& config = record.at("config");
    EXPECT_EQ(config.at("model").at("origin"), "command line");
    EXPECT_EQ(config.at("lr").at("value"), "0.002");
    EXPECT_EQ(config.at("lr").at("origin"), "LOCKSTEP_LR");
    EXPECT_THAT(config.at("batch").at("origin").get<std::string>(), has("train.toml:2:9"));
    EXPECT_EQ(config.at("seed").at("origin"), "default");
    const Json& deciding = record.at("deciding");
    EXPECT_EQ(deciding.at("model"), "mlp");
    EXPECT_EQ(deciding.at("lr"), 0.002);
    EXPECT_EQ(deciding.at("virtual-ranks"), 4);
    EXPECT_EQ(deciding.at("threads"), 1);
    for (const char* part : {"lockstep", "libtorch", "mpi"})
        EXPECT_TRUE(record.at("versions").contains(part)) << part;
}

// The records "steps" of a rank's log.
std::vector<Json> step_records(const fs::path& log) {
    std::vector<Json> found;
    for (const Json& record : json_lines(log))
        if (record.at("event") == "steps") found.push_back(record);
    return found;
}

TEST_F(RunDirectory, HasPhasesThatSumToTheWallTime) {
    for (const int rank : {0, 1}) {
        const auto records = step_records(log(rank, "jsonl"));
        EXPECT_EQ(records.size(), 4u);
        for (const Json& record : records) {
            double sum = 0;
            for (const auto& [phase, seconds] : record.at("phases").items())
                sum += seconds.get<double>();
            const double wall = record.at("wall_s").get<double>();
            EXPECT_NEAR(sum, wall, 0.01 * wall) << "rank " << rank << ": " << record;
        }
    }
}

// From the end of the step before: what happens between steps is of the next one.
TEST_F(RunDirectory, HasStepsWhosePhasesSumToTheWallTime) {
    for (const int rank : {0, 1}) {
        const auto steps = read_step_budgets(step_budgets_path(path() / "logs/i1", rank));
        ASSERT_EQ(steps.size(), 20u);
        double wall_s = 0;
        int exact = 0;
        for (std::size_t i = 1; i < steps.size(); ++i) {
            const double lasted_s = steps[i].ended_unix_s - steps[i - 1].ended_unix_s;
            exact += std::abs(steps[i].wall_s() - lasted_s) <= 0.01 * lasted_s + 1e-5 ? 1 : 0;
            wall_s += steps[i].wall_s();
        }
        const double loop_s = steps.back().ended_unix_s - steps.front().ended_unix_s;
        EXPECT_NEAR(wall_s, loop_s, 0.01 * loop_s);
        EXPECT_GE(exact, 18) << "a rank may be stopped between two looks at the clock";
        for (const std::size_t saved : {8, 16})
            EXPECT_GT(steps[saved].phases[Phase::checkpoint], 0) << "before step " << saved + 1;
        EXPECT_GT(steps[10].phases[Phase::evaluate], 0);
        EXPECT_GT(steps[19].phases[Phase::evaluate], 0)
            << "what came after the last step is its own";
        EXPECT_GT(steps[19].phases[Phase::checkpoint], 0);
        EXPECT_EQ(steps[5].phases[Phase::evaluate], 0);
        EXPECT_GT(steps[5].phases[Phase::backward], 0);
    }
}

// As seff does at the end of a job, but of all ranks.
TEST_F(RunDirectory, EndsWithWhatTheJobUsed) {
    const auto number = [](const std::string& text) { return ContainsRegex("\n" + text + "\n"); };
    EXPECT_THAT(output(),
                number("cpu           [0-9]+ % of [0-9.]+ core.s. for .* \\(2 ranks on 1 node\\)"));
    EXPECT_THAT(output(), number("memory        .* at most \\(rank [01]\\), .* on .* of .*"));
    EXPECT_THAT(output(),
                number("efficiency    [0-9]+ % of the ranks' time in steps \\(.*\\) is computing"));
    EXPECT_THAT(output(), number("time          .*(forward|backward|evaluate|update) [0-9]+ %.*"));
    EXPECT_THAT(content_of(log(0, "log")), has("\nefficiency    "));
    std::vector<JobSummary> found;
    for (const int rank : {0, 1})
        for (const Json& record : json_lines(log(rank, "jsonl")))
            if (auto summary = event_in<JobSummary>(record)) found.push_back(*summary);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].ranks, 2);
    EXPECT_EQ(found[0].steps, 20);
    EXPECT_GT(found[0].cpu_s, 0);
    EXPECT_LT(found[0].cpu_s, 1.05 * found[0].cores * found[0].wall_s);
    EXPECT_GT(found[0].rank_peak_bytes, std::uint64_t{10} << 20);
    EXPECT_LE(found[0].node_peak_bytes, 2 * found[0].rank_peak_bytes);
}

TEST_F(RunDirectory, HasMetricsOfEveryReportAndEvaluation) {
    EXPECT_EQ(training_steps(path()), (std::vector<std::int64_t>{5, 10, 15, 20}));
    std::vector<std::int64_t> evaluated;
    for (const Json& record : json_lines(path() / "metrics.jsonl"))
        if (record.contains("test_accuracy"))
            evaluated.push_back(record.at("step").get<std::int64_t>());
    EXPECT_EQ(evaluated, (std::vector<std::int64_t>{10, 20}));
}

// But line feeds, which end lines.
bool has_control_character(const std::string& text) {
    return std::ranges::any_of(text, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && c != '\n') || byte == 0x7f;
    });
}

TEST_F(RunDirectory, HasNoControlCharacterInAnyTextOrOutput) {
    EXPECT_FALSE(has_control_character(output())) << output();
    const std::set<std::string> texts = {".log", ".jsonl", ".json"};
    for (const auto& entry : fs::recursive_directory_iterator(path())) {
        if (!texts.contains(entry.path().extension().string())) continue;
        EXPECT_FALSE(has_control_character(content_of(entry.path()))) << entry.path();
    }
}

TEST_F(RunDirectory, IsToldOnTheTerminalInTheFormThatTheBookShows) {
    EXPECT_THAT(
        output(),
        has("\nrank  node",
            fmt::format("run {} | incarnation 1 | ", path().string()),
            ContainsRegex("\nstep 10 \\| loss [0-9.]+ \\| lr 2.0e-3 \\| [0-9.]+[kM]? samples/s "
                          "\\| data [0-9]+ % comm [0-9]+ % wait [0-9]+ % \\| mem "),
            ContainsRegex("\nepoch 2 \\| test accuracy [0-9.]+ % \\([0-9]+ of "
                          "200\\) \\| test loss ")));
    EXPECT_EQ(printed_hash(output()).size(), 32u);
    EXPECT_THAT(content_of(log(0, "log")), has("info  step 20 | loss "));
    EXPECT_THAT(content_of(log(1, "log")), has("info  step 20 | loss "));
}

TEST_F(RunDirectory, ListsItsCheckpoints) {
    EXPECT_THAT(
        run_lockstep({"ckpt", "ls", path()}),
        ends(0,
             MatchesRegex("step +epoch +ranks +size +age +kept +evaluated +parameters\n"
                          "8 +0 +2 +[0-9.]+ MiB +[0-9.hms]+ +newest +[0-9a-f]{32}\n"
                          "16 +1 +2 +[0-9.]+ MiB +[0-9.hms]+ +newest +accuracy .* +[0-9a-f]{32}\n"
                          "20 +2 +2 +[0-9.]+ MiB +[0-9.hms]+ +newest +accuracy [0-9.]+ % "
                          "\\([0-9]+ of 200\\) +[0-9a-f]{32}\n"),
             printed_hash(output()) + "\n"));
    EXPECT_THAT(
        run_lockstep({"ckpt", "verify", path()}),
        ends(0,
             testing::Eq("step 8          whole\nstep 16         whole\nstep 20         whole\n")));
}

TEST_F(RunDirectory, HasCheckpointsThatAreCompared) {
    EXPECT_THAT(run_lockstep({"ckpt", "diff", path(), path() / "ckpt/step-000020"}),
                ends(0, ContainsRegex("\nall [0-9]+ tensors and counters have the same")));
    EXPECT_THAT(run_lockstep({"ckpt", "diff", path() / "ckpt/step-000016", path()}),
                ends(1,
                     "first   step 16 of ",
                     "second  step 20 of ",
                     ContainsRegex("[a-z0-9.]+ +[0-9]+ of [0-9]+ elements differ, by [0-9.e-]+"),
                     ContainsRegex("[0-9]+ of [0-9]+ tensors and counters differ")));
    EXPECT_THAT(run_lockstep({"ckpt", "diff", path(), path() / "nothing"}), ends(66, "E201"));
}

TEST_F(RunDirectory, HasFlightRecordsThatDiagnoseIsContentWith) {
    EXPECT_THAT(run_lockstep({"diagnose", path()}),
                ends(0,
                     "incarnation 1: is over: all its ranks finished\n",
                     ContainsRegex("\n   1 .* finished .* #[0-9]+ ")));
    const std::string json =
        output_of(run_lockstep({"diagnose", path(), "--json", "--incarnation", "1"}));
    const Json content = parse_json(json, "diagnose --json");
    EXPECT_EQ(content.at("verdict").at("verdict"), "none");
    ASSERT_EQ(content.at("ranks").size(), 2u);
    EXPECT_EQ(content.at("ranks")[0].at("finished"), content.at("ranks")[1].at("finished"));
    EXPECT_THAT(run_lockstep({"diagnose", path(), "--incarnation", "7"}),
                ends(66, "lockstep: error E663: no flight records in "));
}

TEST_F(RunDirectory, HasCheckpointsWhoseDamageIsFound) {
    const TempDir folder;
    const fs::path copy = folder / "copy";
    fs::copy(path(), copy, fs::copy_options::recursive);
    flip_last_byte(copy / "ckpt/step-000020/shard-00001-of-00002.safetensors");
    EXPECT_THAT(run_lockstep({"ckpt", "verify", copy}),
                ends(65,
                     "step 16         whole\nstep 20         E310 '" + copy.string(),
                     "lockstep: error E310: 1 of 3 checkpoints are damaged\n"));
}

}  // namespace
}  // namespace lockstep::test
