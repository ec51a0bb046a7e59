// SPDX-License-Identifier: Apache-2.0
// A run that is asked from outside: status, save, stop; and the same command again gives the
// undisturbed result.
#include "lockstep/run/run_directory.hpp"

#include "program.hpp"

#include <csignal>

namespace lockstep::test {
namespace {

constexpr const char* endless = "1000000";

Words train(const fs::path& run,
            const std::string& max_steps,
            const std::string& checkpoints,
            int ranks = 2) {
    return train_words(train_data(), run, "mlp", 24) + on_ranks(ranks) +
           typed("--virtual-ranks 4 --epochs % --log-every 20 --max-steps % --checkpoint-every %",
                 {endless, max_steps, checkpoints});
}

class Control : public RunsTest {
  protected:
    /// Starts a run that does not end by itself, and waits until it trains.
    std::unique_ptr<Background> start(const std::string& checkpoints = "never") const {
        auto job = started(train(run_, endless, checkpoints));
        expect_training(*job, newest_step(run_));
        return job;
    }

    ProcessResult expect_done(const Words& words) const {
        const ProcessResult result = run_lockstep(words);
        EXPECT_EQ(result.exit_code, 0) << result.output << output();
        return result;
    }

    void expect_training(Background& job, std::int64_t after) const {
        EXPECT_TRUE(job.trains(run_, after));
        EXPECT_FALSE(job.has_ended()) << output();
    }

    /// At a checkpoint.
    ProcessResult expect_stopped(Background& job, const Words& how) const {
        const auto stopped = expect_done(Words{"stop", run_} + how);
        EXPECT_EQ(job.wait(100), 130) << output();
        EXPECT_EQ(state_of(run_), fmt::format("checkpointed, step {}, exit 130", saved_step()));
        return stopped;
    }

    Json status() const {
        return parse_json(expect_done({"status", run_, "--json"}).output, "status --json");
    }
    std::string phase() const { return status().at("phase").get<std::string>(); }

    std::int64_t saved_step() const { return status().at("saved_step").get<std::int64_t>(); }
    bool has_request() const {
        const RunPaths paths{run_};
        return fs::exists(paths.asked()) || fs::exists(paths.taken());
    }

    /// The same command to `last` ends with what a run that nobody disturbed ends with.
    void expect_undisturbed_end(std::int64_t last) const {
        const auto steps = std::to_string(last);
        const auto hash = printed_hash(output_of(run_lockstep(train(run_, steps, "never"))));
        EXPECT_EQ(hash.size(), 32u);
        EXPECT_EQ(hash,
                  printed_hash(run_lockstep(train(folder_ / "other", steps, "never", 1)).output));
        EXPECT_EQ(state_of(run_), fmt::format("complete, step {}, exit 0", last));
    }
};

TEST_F(Control, SavesAndGoesOnUntilItIsStoppedInAnyWay) {
    auto job = start();
    EXPECT_EQ(phase(), "running");
    EXPECT_EQ(saved_step(), -1);
    EXPECT_THAT(expect_done({"save", run_}),
                says(ContainsRegex("run: saved step [0-9]+; the run goes on\n")));
    const auto saved = saved_step();
    EXPECT_TRUE(fs::exists(checkpoint_of(run_, saved)));
    expect_training(*job, saved);
    EXPECT_EQ(phase(), "running");

    expect_stopped(*job, {"--now"});
    EXPECT_EQ(saved_step(), saved) << "without a checkpoint";
    EXPECT_EQ(state_step(run_), saved);
    EXPECT_GT(newest_step(run_), saved);
    const auto times = status().at("seconds");
    EXPECT_GT(times.at("training").get<double>(), 0);
    EXPECT_GT(times.at("repeated").get<double>(), 0);

    ask_run(run_, ControlAction::stop_now, 1);
    job = start("170steps");
    EXPECT_FALSE(has_request());
    ask_run(run_, ControlAction::stop_now, 1);
    EXPECT_TRUE(job->until([&] { return !has_request(); }));
    expect_training(*job, newest_step(run_));
    EXPECT_THAT(output(), has("a request to an earlier start of the run was found"));

    expect_stopped(*job, {"--after-checkpoint"});
    const auto due = state_step(run_);
    EXPECT_GT(due, saved);
    EXPECT_EQ(due % 170, 0);

    job = start();
    const auto stopped = expect_stopped(*job, {});
    const auto end = state_step(run_);
    EXPECT_GT(end, due);
    EXPECT_EQ(phase(), "checkpointed");
    EXPECT_THAT(stopped,
                says(fmt::format("run: stopped; the same command goes on from step {}\n", end)));
    EXPECT_THAT(status().at("reason").get<std::string>(), has("stopped by request of "));
    EXPECT_FALSE(has_request());
    expect_undisturbed_end(end + 30);
    EXPECT_EQ(phase(), "complete");
    EXPECT_EQ(status().at("starts").size(), 4u);
}

TEST_F(Control, KnowsARunThatWasKilled) {
    auto job = start();
    const auto launcher = children_of(job->pid());
    ASSERT_FALSE(launcher.empty());
    job->send(SIGKILL);
    EXPECT_TRUE(job->wait(100).has_value());
    expect_nothing_left();
    EXPECT_EQ(state_of(run_), "running, step 0, exit 0") << "nobody could say so";
    // A process without a command line may hold its lock for a moment yet.
    EXPECT_TRUE(eventually([&] { return phase() == "lost"; }, 60)) << phase();
    EXPECT_EQ(status().at("seconds").at("training"), 0.0);
    EXPECT_THAT(expect_done({"status", run_}), says("no process works on it: process "));
    EXPECT_THAT(run_lockstep({"stop", run_}),
                ends(69, "lockstep: error E683: nothing runs in '", "is gone\n"));
    EXPECT_FALSE(has_request());
}

// The ranks are held up, so that they cannot answer in time; then they do.
TEST_F(Control, KeepsARequestThatWasNotMetInTime) {
    auto job = start();
    const auto launcher = children_of(job->pid());
    ASSERT_FALSE(launcher.empty());
    const auto ranks = children_of(launcher.front());
    ASSERT_EQ(ranks.size(), 2u);
    for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
    const auto late = run_lockstep({"save", run_, "--timeout", "1s"});
    for (const pid_t rank : ranks) ::kill(rank, SIGCONT);
    EXPECT_EQ(late.exit_code, 69);
    EXPECT_THAT(late, says("lockstep: error E685: "));
    EXPECT_TRUE(job->until([&] { return saved_step() > 0; }));
    EXPECT_TRUE(eventually([&] { return !has_request(); }, 30));
    EXPECT_FALSE(job->has_ended()) << output();
}

TEST_F(Control, SaysWhereARunStandsFromItsBeginningToItsEnd) {
    const auto job = started(train(run_, "60", "20steps"));
    std::vector<std::string> seen;
    while (!job->has_ended()) {
        const auto found = run_lockstep({"status", run_, "--json"});
        if (found.exit_code != 0) {
            EXPECT_THAT(found.output, ContainsRegex("error E(201|688): "));
            continue;
        }
        const auto now = parse_json(found.output, "status").at("phase").get<std::string>();
        if (seen.empty() || seen.back() != now) seen.push_back(now);
    }
    EXPECT_EQ(job->wait(), 0) << output();
    for (const auto& phase : seen)
        EXPECT_THAT(phase, testing::AnyOf("starting", "running", "complete"));
    EXPECT_FALSE(seen.empty());
    EXPECT_EQ(phase(), "complete");
    EXPECT_THAT(expect_done({"status", "--all", folder_.path()}).output,
                ContainsRegex("/run +complete +60 of 60 \\(100 %\\) +- +1 +[0-9]"));
    EXPECT_THAT(expect_done({"status", run_}).output, ContainsRegex("goodput +[0-9]+ % of "));
    EXPECT_THAT(run_lockstep({"save", run_}), says("why: the run is complete at step 60\n"));
}

TEST_F(Control, OfManyRunsIsATableWithTheirBestEvaluationsAndWhatDiffers) {
    for (const char* rate : {"0.01", "0.02"})
        expect_done(train_words(train_data(), folder_ / (std::string("lr") + rate), "mlp", 48) +
                    typed("--np 1 --test-data % --max-steps 4 --evaluate-every 2steps --lr %",
                          {test_data(), rate}));
    const fs::path data = train_data();
    expect_done(
        typed("train --np 1 --data % --model mlp --batch 48 --max-steps 1 --lr 0.01 --run %",
              {data.parent_path() / "." / data.filename(), folder_ / "none"}));
    const std::string table = expect_done({"status", "--all", folder_.path()}).output;
    EXPECT_THAT(table, ContainsRegex("goodput +metric +best +best step .* lr .*"));
    EXPECT_THAT(table, ContainsRegex("/lr0.02 .* accuracy +0.[0-9]+ +[24] .* 0.02"));
    EXPECT_THAT(table, has(Not(has("batch")), Not(has(" data "))));
    const std::string csv = expect_done({"status", "--all", folder_.path(), "--csv"}).output;
    EXPECT_THAT(csv, StartsWith("run,phase,step,steps_total,goodput,metric,best,best step,"));
    EXPECT_THAT(csv, ContainsRegex("/none,complete,1,1,[0-9.]+,,,"));
    const auto all = expect_done({"status", "--all", folder_.path(), "--json"}).output;
    const Json first = parse_json(all, "status")[std::size_t{0}];
    EXPECT_EQ(first["settings"]["lr"].get<std::string>(), "0.01");
    EXPECT_EQ(first["best"]["metric"].get<std::string>(), "accuracy");
    EXPECT_THAT(run_lockstep({"status", "--csv", folder_ / "none"}), ends(64));
}

TEST(ControlCommands, RefuseWhatIsNoRun) {
    const TempDir folder;
    for (const std::string command : {"status", "stop", "save"}) {
        EXPECT_THAT(run_lockstep({command, folder / "none"}), ends(66));
        EXPECT_THAT(run_lockstep({command, folder.path()}), ends(66, "lockstep: error E688: "));
        EXPECT_THAT(run_lockstep({command}), ends(64));
        EXPECT_THAT(run_lockstep({command, "a", "b"}), ends(64));
    }
    EXPECT_THAT(run_lockstep({"stop", "a", "--now", "--after-checkpoint"}), ends(64));
    EXPECT_THAT(run_lockstep({"status", "--all", folder.path()}), says("no runs in '"));
}

}  // namespace
}  // namespace lockstep::test
