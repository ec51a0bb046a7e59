// SPDX-License-Identifier: Apache-2.0
// `lockstep logs`: of a run that ends well, and of runs that a rank ruins, or a slow link between
// nodes (hosts in namespaces, one of which sends through a narrow pipe): the cause is named.
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"

#include "program.hpp"

#include <csignal>
#include <fstream>

namespace lockstep::test {
namespace {

Words logged_train(const fs::path& data, const fs::path& run, int ranks, std::int64_t length) {
    return train_words(data, run, "mlp", 24) + on_ranks(ranks) +
           typed("--log-every 5 --virtual-ranks 4 --max-steps % --checkpoint-every never",
                 {std::to_string(length)});
}

std::string logs_of(const fs::path& run, const Words& more = {}) {
    return output_of(run_lockstep(Words{"logs", run} + more));
}

/// As `logs` tells it, and `report` in the same words.
Json first_error_of(const fs::path& run) {
    const Json told = parse_json(logs_of(run, {"--first-error", "--json"}), "first error");
    const std::string result = output_of(run_lockstep({"report", run, "--format", "json"}));
    const Json report = parse_json(result, "report");
    for (const char* key : {"rank", "ranks", "host", "code", "what"})
        EXPECT_EQ(report.at("cause").at(key), told.at(key));
    EXPECT_EQ(report.at("cause").value("trouble", Json()), told.value("trouble", Json()));
    EXPECT_EQ(report.at("findings").at(0).at("kind"), "failure");
    EXPECT_THAT(report.at("outcome").get<std::string>(),
                has(fmt::format(" {} on {}: ", told.at("rank").get<int>(), host_name())));
    return told;
}

// One run of two ranks that ends well. Its loader has something to say before anybody has a log.
class Logs : public testing::Test {
  protected:
    struct Made {
        TempDir folder;
        std::string output =
            output_of(run_lockstep(logged_train(train_data(), folder / "run", 2, 20),
                                   {{"LD_PRELOAD", "/nonexistent/library.so"}}));
    };
    static const Made& made() {
        static const Made made;
        return made;
    }
    static fs::path run() { return made().folder / "run"; }
};

TEST_F(Logs, AreOneAndEndWithTheNextCommand) {
    const std::string text = logs_of(run());
    EXPECT_THAT(text, has(fmt::format("start 1: 2 ranks on {}\n", host_name())));
    EXPECT_THAT(text, ContainsRegex("Z \\[all\\] info  run .* \\| incarnation 1 \\|"));
    for (const int step : {5, 10, 15, 20})
        EXPECT_THAT(text, ContainsRegex(fmt::format("Z \\[0-1\\] info  step {} \\| loss", step)));
    EXPECT_TRUE(text.ends_with(fmt::format("next: lockstep status {}\n", run().string()))) << text;
    EXPECT_EQ(text.find('\033'), std::string::npos);
    EXPECT_THAT(logs_of(run(), {"--first-error"}), has("no error in its logs"));
}

TEST_F(Logs, HaveRankHostAndStartInEveryRecord) {
    for (const int rank : {0, 1}) {
        const auto records = json_lines(run() / fmt::format("logs/i1/rank-{:05}.jsonl", rank));
        ASSERT_FALSE(records.empty());
        EXPECT_EQ(records.front().at("event"), "clock");
        for (const Json& record : records) {
            EXPECT_EQ(record.at("rank"), rank);
            EXPECT_EQ(record.at("host"), host_name());
            EXPECT_EQ(record.at("start"), 1);
        }
    }
}

TEST_F(Logs, HaveWhatRanksSaidBeforeTheirLogsWereOpen) {
    const std::string said = "ERROR: ld.so: object '/nonexistent/library.so' from LD_PRELOAD";
    EXPECT_THAT(made().output, has(said));
    EXPECT_THAT(logs_of(run()), ContainsRegex("Z \\[launcher\\] warn  " + said));
    EXPECT_THAT(logs_of(run(), {"--node", host_name()}), has(said));
    EXPECT_THAT(logs_of(run(), {"--rank", "0-1"}), Not(has("launcher")));
    EXPECT_THAT(logs_of(run(), {"--level", "error"}), Not(has("launcher")));
    const std::string json = logs_of(run(), {"--json"});
    const Json line = parse_json(json.substr(0, json.find('\n')), "line");
    EXPECT_EQ(line.at("from"), "launcher");
    EXPECT_EQ(line.at("ranks"), Json::array());
}

TEST_F(Logs, ShowWhatIsChosen) {
    EXPECT_THAT(logs_of(run(), {"--rank", "1"}), Not(has("[all]")));
    EXPECT_THAT(logs_of(run(), {"--level", "error"}), Not(has("Z [")));
    EXPECT_THAT(logs_of(run(), {"--diff-rank", "1"}), Not(has("step 5"))) << "both said it";
    for (const std::string& line : {logs_of(run(), {"--json", "--rank", "0-1"})})
        EXPECT_EQ(parse_json(line.substr(0, line.find('\n')), "line").at("level"), "info");
}

TEST_F(Logs, RefuseWhatTheyDoNotHave) {
    const auto refused = [&](const Words& words) {
        return run_lockstep(Words{"logs", run()} + words).output;
    };
    EXPECT_THAT(refused({"--rank", "0,7"}), has("error E102: '7' is no rank of this start"));
    EXPECT_THAT(refused({"--rank", "x"}), has("error E103: --rank is 'x'"));
    EXPECT_THAT(refused({"--diff-rank", "2"}), has("error E102"));
    EXPECT_THAT(refused({"--node", "nowhere"}), has("error E103: --node is 'nowhere'"));
    EXPECT_THAT(refused({"--since", "soon"}), has("error E103: --since is 'soon'"));
    EXPECT_THAT(refused({"--incarnation", "2"}), has("error E102: --incarnation is 2"));
    EXPECT_THAT(refused({"--follow", "--first-error"}), has("error E106"));
    EXPECT_THAT(run_lockstep({"logs", run() / "none"}), ends(66));
    EXPECT_THAT(run_lockstep({"logs", train_data()}), ends(66));
}

TEST_F(Logs, EndQuietlyWhereNobodyReadsOn) {
    const ProcessResult result = run_process(
        {"bash", "-c", "\"$0\" logs \"$1\" | head -n 1; exit ${PIPESTATUS[0]}", program(), run()});
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 128 + SIGPIPE) << result.exit_code;
    EXPECT_EQ(std::ranges::count(result.output, '\n'), 1);
}

// Two starts of three ranks on two nodes, made up.
class MadeUpLogs : public RunsTest {
  protected:
    MadeUpLogs() {
        RunDirectory run = RunDirectory::open(run_);
        run.create({});
        for (std::int64_t start = 1; start <= 2; ++start) {
            run.begin_incarnation();
            for (int rank = 0; rank < 3; ++rank) write(run.logs(), start, rank);
        }
        run.write_state({.phase = RunPhase::checkpointed, .step = 5, .steps_total = 9});
    }

    static void write(const fs::path& folder, std::int64_t start, int rank) {
        open_log({.rank = rank,
                  .world_size = 3,
                  .start = start,
                  .host = rank == 2 ? "n2" : "n1",
                  .directory = folder,
                  .terminal_level = Level::error});
        once(Level::info, "start {} begins", start);
        here(Level::info, "all say this");
        if (rank != 1) here(Level::info, "most say this");
        if (rank == 1) here(Level::warn, "the disk is slow");
        open_log({});
    }

    /// Steps of 10 ms of start `start`, of which rank 2 computes all and the others half.
    void slow_rank_2_down(std::int64_t start) const {
        for (int rank = 0; rank < 3; ++rank) {
            StepBudgetFile steps(step_budgets_path(RunPaths{run_}.logs(start), rank));
            for (std::int64_t step = 1; step <= 400; ++step) {
                StepBudget budget{.step = step, .ended_unix_s = 0.01 * static_cast<double>(step)};
                budget.phases[Phase::backward] = rank == 2 ? 0.01 : 0.005;
                budget.phases[Phase::wait] = rank == 2 ? 0 : 0.005;
                steps.add(budget);
            }
        }
    }
};

TEST_F(MadeUpLogs, NameTheRankThatOthersWaitForWhereNothingElseIsWrong) {
    EXPECT_THAT(logs_of(run_, {"--first-error"}),
                has("start 2: no error in its logs; the run is checkpointed"));
    slow_rank_2_down(2);
    EXPECT_THAT(logs_of(run_, {"--first-error"}),
                has("start 2: no error in its logs; rank 2 on n2 holds the others up "
                    "by 5ms a step (50 %): it computes slower",
                    "\n  fix: top on n2 shows other programs on its cores",
                    "\n  the run is checkpointed\nnext: lockstep report ",
                    Not(has("--incarnation"))));
    const Json told = parse_json(logs_of(run_, {"--first-error", "--json"}), "first error");
    EXPECT_EQ(told.at("kind"), "slow");
    EXPECT_EQ(told.at("next"), "lockstep report " + run_.string());
    const ProcessResult report = run_lockstep({"report", run_, "--format", "json"});
    const Json slowest = parse_json(report.output, "report").at("stragglers").at(0);
    EXPECT_EQ(slowest.at("rank"), 2);
    for (const auto& [key, value] : slowest.items()) EXPECT_EQ(told.at(key), value) << key;
}

TEST_F(MadeUpLogs, NameAnErrorAndNotWhoWasSlowBeforeIt) {
    slow_rank_2_down(1);
    open_log({.rank = 1,
              .world_size = 3,
              .start = 1,
              .host = "n1",
              .directory = RunPaths{run_}.logs(1),
              .terminal_level = Level::error});
    log_event(ErrorEvent{"E402", "cannot write 'a'", "the disk is full"});
    open_log({});
    const std::string text = logs_of(run_, {"--first-error", "--incarnation", "1"});
    EXPECT_THAT(text, has("start 1: rank 1 on n1: error E402\n", Not(has("holds the others up"))));
}

TEST_F(MadeUpLogs, ShowWhereARankDiffers) {
    const std::string text = logs_of(run_, {"--diff-rank", "1"});
    EXPECT_THAT(text, ContainsRegex("\n\\+ 20[^ ]*Z \\[1 n1\\] warn  the disk is slow\n"));
    EXPECT_THAT(text, ContainsRegex("\n- 20[^ ]*Z \\[0,2\\] info  most say this\n"));
    EXPECT_THAT(text, has(Not(has("all say this")), Not(has("begins"))));
}

TEST_F(MadeUpLogs, AreThoseOfTheNewestStartUnlessOthersAreAskedFor) {
    EXPECT_THAT(logs_of(run_), has("start 2: 3 ranks on n1, n2\n"));
    EXPECT_THAT(logs_of(run_, {"--incarnation", "1"}), has("[all] info  start 1 begins\n"));
    const std::string both = logs_of(run_, {"--all-starts"});
    EXPECT_LT(both.find("start 1 begins"), both.find("start 2 begins"));
    EXPECT_NE(both.find("start 2 begins"), both.npos);
}

TEST_F(MadeUpLogs, AreOfOneNodeOrLevelWhereThatIsAskedFor) {
    EXPECT_THAT(logs_of(run_, {"--node", "n2"}), has("[2 n2] info  all say this\n"));
    EXPECT_THAT(logs_of(run_, {"--node", "n2"}), Not(has("disk")));
    EXPECT_THAT(logs_of(run_, {"--level", "warn"}), Not(has("info")));
    EXPECT_THAT(run_lockstep({"logs", run_, "--node", "n3"}), says("n1, n2"));
}

// A rank ruins a run.
class RuinedLogs : public RunsTest {
  protected:
    static constexpr int ranks = 3;

    /// Trains for long; returns once it does, with the ranks' processes in order of rank.
    std::vector<pid_t> start(const Words& more = {}) {
        job_ = started(logged_train(train_data(), run_, ranks, 1'000'000) + more);
        EXPECT_TRUE(job_->trains(run_, 4));
        const auto mpirun = children_of(job_->pid());
        return mpirun.empty() ? std::vector<pid_t>{} : children_of(mpirun.front());
    }

    std::unique_ptr<Background> job_;
};

TEST_F(RuinedLogs, NameARankThatWasKilledAndAreFollowedToTheEnd) {
    const auto pids = start();
    ASSERT_EQ(pids.size(), 3u) << output();
    Background stopped({program(), "logs", run_, "--follow"}, folder_ / "stopped");
    Background followed({program(), "logs", run_, "--follow"}, folder_ / "followed");
    ASSERT_TRUE(eventually(
        [&] {
            return content_of(folder_ / "stopped").find("[0-2] info  step") != std::string::npos;
        },
        30));
    stopped.send(SIGINT);
    EXPECT_EQ(stopped.wait(60), 130);
    ::kill(pids[1], SIGKILL);
    EXPECT_EQ(job_->wait(60), 76);
    EXPECT_THAT(output(),
                ContainsRegex("lockstep: error E660: rank 1 \\(.*, pid (.|\n)*is gone without a "
                              "word\n"));
    EXPECT_THAT(state_of(run_), StartsWith("failed, step "));
    EXPECT_THAT(run_lockstep({"diagnose", run_}), ends(76));
    EXPECT_EQ(followed.wait(30), 0);
    EXPECT_THAT(content_of(folder_ / "followed"),
                has(fmt::format("next: lockstep logs {} --first-error", run_.string())));
    const Json cause = first_error_of(run_);
    EXPECT_EQ(cause.at("rank"), 1) << cause;
    EXPECT_EQ(cause.at("host"), host_name());
    EXPECT_EQ(cause.at("trouble"), "rank dead");
    EXPECT_EQ(cause.at("next"), "lockstep diagnose " + run_.string());
    EXPECT_THAT(logs_of(run_, {"--first-error"}),
                has(fmt::format("start 1: rank 1 on {}: rank dead\n", host_name())));
}

TEST_F(RuinedLogs, NameARankThatWasStopped) {
    const auto pids = start({"--comm-timeout", "3s"});
    ASSERT_EQ(pids.size(), 3u) << output();
    ::kill(pids[2], SIGSTOP);
    EXPECT_EQ(job_->wait(60), 76);
    const Json cause = first_error_of(run_);
    EXPECT_EQ(cause.at("rank"), 2) << cause;
    EXPECT_EQ(cause.at("host"), host_name());
    EXPECT_EQ(cause.at("trouble"), "rank stopped");
}

TEST_F(RuinedLogs, NameTheRankThatMetDamagedData) {
    const fs::path data = folder_ / "damaged";
    copy_train_set(data);
    const std::uint64_t block = open_index(data)->stored_blocks(0)[3].offset;
    std::fstream(shard_of(data), std::ios::in | std::ios::out | std::ios::binary)
            .seekp(static_cast<std::streamoff>(block + 100))
        << "damage";
    const std::string result =
        output_of(run_lockstep(logged_train(data, run_, 2, 25) + Words{"--data-mode", "stream"}),
                  testing::Ne(0));
    const Json cause = first_error_of(run_);
    EXPECT_EQ(cause.at("code"), "E213") << cause;
    EXPECT_EQ(cause.at("host"), host_name());
    EXPECT_EQ(cause.at("next"), "lockstep explain E213");
    const Json state = read_json(run_ / "state.json");
    EXPECT_EQ(state.at("phase"), "failed") << state;
    EXPECT_EQ(state.at("exit"), 65) << state;
    EXPECT_THAT(state.at("reason").get<std::string>(), StartsWith("E213: "));
    const std::string text = logs_of(run_, {"--level", "error"});
    EXPECT_EQ(text.find("E213"), text.rfind("E213")) << "told once:\n" << text;
    EXPECT_THAT(result, has(fmt::format("rank {}", cause.at("rank").get<int>())));

    EXPECT_THAT(run_lockstep(logged_train(data, run_, 2, 25) + Words{"--lr", "0.5"}), ends(78));
    for (const Words& words : {Words{}, Words{"--first-error"}})
        EXPECT_THAT(logs_of(run_, words),
                    ContainsRegex("a later launch, whose ranks did not begin, said last:\n"
                                  ".*\\[launcher\\] error E306: "));
}

/// On hosts a, b and c, of which `slow` ("": none) sends 25 MB/s at most.
ProcessResult train_on_hosts(const fs::path& run, const std::string& slow) {
    const std::string script =
        "[ -z \"$1\" ] || \"$0\" --on \"$1\" tc qdisc add dev eth0 root tbf rate 200mbit burst "
        "32kb "
        "latency 100ms && shift && exec \"$@\"";
    const Words hosts = {LOCKSTEP_TWO_HOSTS, "a:1,b:1,c:1", "--", "sh", "-c", script};
    const Words mpirun = {LOCKSTEP_TWO_HOSTS, slow, "mpirun", "--bind-to", "none", program()};
    return run_process(hosts + mpirun + train_words(train_data(), run, "mlp", 48) +
                           typed("--virtual-ranks 4 --max-steps 120"),
                       {{"OMPI_MCA_mpi_yield_when_idle", "1"}},
                       ample_s);
}

/// Trains with and without a slow link. Three hosts share the cores: a rank that others keep from
/// its core for longer than any link does is named for that, and rightly.
testing::AssertionResult is_named_where_slow(const fs::path& folder) {
    const std::string named = "rank 1 on b holds the others up by ";
    const std::string cause = "its node's link is slow: ";
    const ProcessResult alike = train_on_hosts(folder / "alike", "");
    const ProcessResult slow = train_on_hosts(folder / "slow", "b");
    const ProcessResult report = run_lockstep({"report", folder / "slow"});
    EXPECT_EQ(alike.exit_code, 0) << alike.output;
    EXPECT_EQ(slow.exit_code, 0) << slow.output;
    const auto at_end = has("\nwhy           " + named, cause);
    const bool holds = testing::Value(alike.output, Not(has("link is slow"))) &&
                       testing::Value(slow.output, at_end) &&
                       testing::Value(report, says(named, cause));
    if (holds) return testing::AssertionSuccess();
    return testing::AssertionFailure() << alike.output << slow.output << report.output;
}

TEST(SlowLink, IsNamedWithItsNodeAtTheEndAndInTheReport) {
    if (const auto why = hosts_obstacle(LOCKSTEP_TWO_HOSTS); !why.empty()) GTEST_SKIP() << why;
    const TempDir folder;
    testing::AssertionResult holds = testing::AssertionFailure();
    for (const char* name : {"first", "second", "third"})
        if (!holds) holds = is_named_where_slow(folder / name);
    EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace lockstep::test
