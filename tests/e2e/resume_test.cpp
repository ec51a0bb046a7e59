// SPDX-License-Identifier: Apache-2.0
// Runs that are killed or told to stop, and the same command again: the result is the undisturbed
// one.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/random.hpp"

#include "program.hpp"

#include <algorithm>
#include <csignal>

namespace lockstep::test {
namespace {

constexpr std::int64_t steps_per_epoch = 25;  // 600 samples, 24 in a step
// A signal comes before their end, also from a test that is held up.
constexpr std::int64_t epochs = 12;
constexpr std::int64_t total_steps = epochs * steps_per_epoch;

Words train(const fs::path& run) {
    return train_words(train_data(), run, "mlp", 24) +
           typed("--virtual-ranks 4 --epochs % --checkpoint-every 7steps --log-every 1",
                 {std::to_string(epochs)});
}

// What an undisturbed run on two ranks ends with; computed once.
const std::string& undisturbed_hash() {
    static const std::string hash = [] {
        const TempDir folder;
        return printed_hash(run_lockstep(train(folder / "run") + on_ranks(2)).output);
    }();
    return hash;
}

enum class Victim { rank, launcher, command };

class Resume : public RunsTest {
  protected:
    void SetUp() override { ASSERT_EQ(undisturbed_hash().size(), 32u); }

    /// Starts the run on `ranks` ranks.
    std::unique_ptr<Background> start(int ranks) const {
        return started(train(run_) + on_ranks(ranks));
    }

    /// Waits until the run has done `step` steps, or has ended.
    void wait_for_step(Background& job, std::int64_t step) const { job.trains(run_, step - 1); }

    /// Kills one process of `job`, then waits until all have gone.
    void kill_one(Background& job, Victim victim) {
        const auto launcher = children_of(job.pid());
        const auto ranks = launcher.empty() ? launcher : children_of(launcher.front());
        if (victim == Victim::rank && !ranks.empty())
            ::kill(ranks[random_.below(ranks.size())], SIGKILL);
        if (victim == Victim::launcher && !launcher.empty()) ::kill(launcher.front(), SIGKILL);
        if (victim == Victim::command) job.send(SIGKILL);
        EXPECT_TRUE(job.wait().has_value());
        expect_nothing_left();
    }

    /// Runs on `ranks` ranks to the end and compares with the undisturbed run.
    void expect_undisturbed_end(int ranks) const {
        const std::string result = output_of(run_lockstep(train(run_) + on_ranks(ranks)));
        EXPECT_EQ(printed_hash(result), undisturbed_hash());
        EXPECT_EQ(state_of(run_), fmt::format("complete, step {}, exit 0", total_steps));
        EXPECT_EQ(training_steps(run_), all_steps(total_steps));
    }

    std::int64_t random_step(std::int64_t first, std::int64_t last) {
        return first + static_cast<std::int64_t>(
                           random_.below(static_cast<std::uint64_t>(last - first + 1)));
    }

    const std::uint64_t seed_ = static_cast<std::uint64_t>(unix_time_s() * 1e3);
    CounterRandom random_{Purpose::test, {seed_}};
};

class ResumeAfterKill : public Resume, public testing::WithParamInterface<Victim> {};

TEST_P(ResumeAfterKill, GivesTheUndisturbedResult) {
    const std::int64_t step = random_step(0, total_steps - 5);
    SCOPED_TRACE(fmt::format("seed {}: killed at step {}", seed_, step));
    auto job = start(2);
    wait_for_step(*job, step);
    kill_one(*job, GetParam());
    expect_undisturbed_end(2);
}

std::string victim_name(const testing::TestParamInfo<Victim>& info) {
    constexpr const char* names[] = {"OfARank", "OfMpirun", "OfTheCommand"};
    return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(,
                         ResumeAfterKill,
                         testing::Values(Victim::rank, Victim::launcher, Victim::command),
                         victim_name);

TEST_F(Resume, GoesOnWithAnyNumberOfRanks) {
    auto two = start(2);
    wait_for_step(*two, random_step(8, 30));
    kill_one(*two, Victim::launcher);
    // The ranks may have gone on for some steps.
    const std::int64_t step = std::max(random_step(40, 70), newest_step(run_) + 1);
    auto three = start(3);
    wait_for_step(*three, step);
    three->send(SIGUSR1);
    EXPECT_EQ(three->wait(), 75);
    expect_undisturbed_end(1);
    const double before = now_s();
    expect_undisturbed_end(2);  // a complete run changes no more
    EXPECT_LT(now_s() - before, 60);
}

// mpirun gives USR1 and USR2 to all ranks and returns their exit code. With TERM it returns its own
// and leaves ranks two seconds: the state tells, and the run goes on in any case.
TEST_F(Resume, AfterSignalsToAnMpirunOfOnesOwn) {
    const Words words = mpirun_words(2) + Words{program()} + train(run_);
    Background first(words, folder_ / "output");
    wait_for_step(first, 10);
    first.send(SIGUSR2);
    EXPECT_EQ(first.wait(), 75) << output();
    EXPECT_EQ(state_of(run_), fmt::format("checkpointed, step {}, exit 75", newest_step(run_)));
    Background second(words, folder_ / "output");
    wait_for_step(second, 40);
    second.send(SIGTERM);
    EXPECT_NE(second.wait(), 0);
    expect_undisturbed_end(2);
}

struct Stop {
    const char* name;
    int signal;
    int exit_code;
    int exit_in_state;  ///< of the ranks, who see USR2 whatever the command was sent
    int resumed_on;     ///< ranks
};

class ResumeAfterStop : public Resume, public testing::WithParamInterface<Stop> {
  protected:
    void expect_stopped(Background& job) {
        const Stop stop = GetParam();
        wait_for_step(job, 10);
        job.send(stop.signal);
        EXPECT_EQ(job.wait(), stop.exit_code) << output();
        const std::int64_t step = newest_step(run_);
        EXPECT_GE(step, 10);
        EXPECT_LT(step, total_steps);
        EXPECT_NE(output().find(fmt::format("stopped after step {}; ", step)), std::string::npos);
        EXPECT_EQ(state_of(run_),
                  fmt::format("checkpointed, step {}, exit {}", step, stop.exit_in_state));
        EXPECT_TRUE(fs::exists(checkpoint_of(run_, step)));
    }
};

TEST_P(ResumeAfterStop, GivesTheUndisturbedResult) {
    auto job = start(2);
    expect_stopped(*job);
    expect_undisturbed_end(GetParam().resumed_on);
}

INSTANTIATE_TEST_SUITE_P(,
                         ResumeAfterStop,
                         testing::Values(Stop{"BySigusr1", SIGUSR1, 75, 75, 1},
                                         Stop{"BySigusr2", SIGUSR2, 75, 75, 1},
                                         Stop{"BySigterm", SIGTERM, 75, 75, 2},
                                         Stop{"BySigint", SIGINT, 130, 75, 1}),
                         [](const auto& of) { return of.param.name; });

class ResumeWithOtherSettings : public RunsTest {
  protected:
    ProcessResult go_on(const Words& more, const Variables& variables = {}) {
        steps_ += 1;
        const Words length = {"--max-steps", std::to_string(steps_)};
        return run_lockstep(train(run_) + length + more, variables);
    }

    void expect_accepted(const Words& more, const Variables& variables = {}) {
        EXPECT_THAT(go_on(more, variables), ends(0));
        EXPECT_EQ(newest_step(run_), steps_);
    }

    void expect_refused(const Words& more, const std::string& difference) {
        EXPECT_THAT(go_on(more), ends(78, "error E306: run '", difference));
    }

    std::int64_t steps_ = 0;
};

// A setting that others leave without an effect decides nothing, whatever it was when the run was
// made.
TEST_F(ResumeWithOtherSettings, IsAllowedWhereTheyHaveNoEffect) {
    expect_accepted({}, {{"LOCKSTEP_MOMENTUM", "0.5"}, {"LOCKSTEP_LR_GAMMA", "0.5"}});
    expect_accepted({});
    expect_accepted({"--momentum", "0.7", "--lr-gamma", "0.3"});
    expect_accepted({"--io-threads", "2", "--np", "2", "--oversubscribe"});
}

TEST_F(ResumeWithOtherSettings, IsRefusedWhereTheyDecideTheBits) {
    const Words sgd = {"--optimizer", "sgd", "--lr", "0.01"};
    expect_accepted(sgd, {{"LOCKSTEP_BETA1", "0.5"}});
    expect_refused(sgd + Words{"--momentum", "0.5"}, "momentum");
    expect_refused({"--optimizer", "sgd", "--lr", "0.02"}, "lr");
    expect_refused({"--lr", "0.01"}, "optimizer");
    expect_refused(sgd + Words{"--schedule", "cosine"}, "schedule");
    EXPECT_EQ(newest_step(run_), 1);
    expect_accepted(sgd);
}

// What evaluation said last; it is of the average.
std::string last_evaluation(const fs::path& run) {
    std::string last;
    for (const Json& line : json_lines(run / "metrics.jsonl"))
        if (line.contains("test_loss")) last = line.dump();
    return last;
}

TEST(ResumeOfAnAverage, GoesOnExactlyAndLeavesTheWeightsAlone) {
    const TempDir folder;
    const auto hash_of = [&](const std::string& run, int last_step, int ranks, const Words& more) {
        const Words words = train(folder / run) + Words{"--test-data", test_data()} +
                            Words{"--max-steps", std::to_string(last_step)} + on_ranks(ranks);
        return printed_hash(run_lockstep(words + more).output);
    };
    const Words averaged = {"--ema", "0.9"};
    const std::string hash = hash_of("whole", 8, 1, averaged);
    hash_of("cut", 5, 2, averaged);
    EXPECT_EQ(hash_of("cut", 8, 3, averaged), hash);
    EXPECT_EQ(hash_of("plain", 8, 1, {}), hash);
    EXPECT_THAT(last_evaluation(folder / "whole"), has("\"step\":8"));
    EXPECT_EQ(last_evaluation(folder / "cut"), last_evaluation(folder / "whole"));
    EXPECT_NE(last_evaluation(folder / "plain"), last_evaluation(folder / "whole"));
}

// At a rate of 0 every evaluation is as the first: three that are no better are over at step 20.
TEST(ResumeOfAnEarlyStop, KeepsTheBestAndCountsOn) {
    const TempDir folder;
    const Words words = Words{"train", "--data", train_data(), "--test-data", test_data()} +
                        Words{"--run", folder / "run", "--model", "mlp", "--virtual-ranks", "4"} +
                        Words{"--optimizer", "sgd", "--lr", "0", "--evaluate-every", "5steps"} +
                        Words{"--keep-best", "accuracy", "--early-stop", "3"} +
                        Words{"--checkpoint-every", "4steps", "--keep", "last=1"};
    EXPECT_THAT(run_lockstep(words + Words{"--max-steps", "10"} + on_ranks(2)), ends(0));
    for (const int ranks : {3, 1}) {
        EXPECT_THAT(run_lockstep(words + Words{"--max-steps", "90"} + on_ranks(ranks)),
                    ends(0,
                         ContainsRegex("stopped early after step 20: 3 evaluations without a "
                                       "better accuracy than [0-9.]+ of step 5\n")));
        EXPECT_EQ(state_of(folder / "run"), "complete, step 20, exit 0");
        EXPECT_THAT(read_json(folder / "run/state.json").at("reason").get<std::string>(),
                    StartsWith("stopped early: 3 evaluations without"));
    }
    EXPECT_THAT(run_lockstep({"ckpt", "ls", folder / "run"}).output,
                MatchesRegex("step .*\n5 .* best +best accuracy [0-9.]+ +[0-9a-f]{32}\n"
                             "10 .* read +accuracy [0-9.]+ .* +[0-9a-f]{32}\n"
                             "20 .* newest +accuracy [0-9.]+ .* +[0-9a-f]{32}\n"));
}

TEST(ResumeWithoutLastSteps, GoesOnExactlyAndKeepsItsLedger) {
    const TempDir folder;
    // 4 steps of 128 of 600 samples an epoch.
    const auto hash_of = [&](const std::string& run, int last_step, int ranks) {
        const Words words = train_words(train_data(), folder / run, "mlp", 128) +
                            typed("--virtual-ranks 4 --drop-last --ledger --max-steps %",
                                  {std::to_string(last_step)});
        return printed_hash(run_lockstep(words + on_ranks(ranks)).output);
    };
    const std::string hash = hash_of("whole", 10, 1);
    EXPECT_EQ(hash.size(), 32u);
    hash_of("cut", 3, 2);
    hash_of("cut", 6, 3);
    EXPECT_EQ(hash_of("cut", 10, 2), hash);
    EXPECT_THAT(run_lockstep({"data", "ledger", folder / "cut"}),
                ends(0,
                     StartsWith("600 samples, 88 of them in no epoch (--drop-last, --split)"),
                     "512          0          0           0        0  "
                     "every sample but those dropped exactly once\n"));
}

}  // namespace
}  // namespace lockstep::test
