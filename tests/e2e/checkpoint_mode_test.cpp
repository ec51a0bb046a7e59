// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written beside the steps: the bytes of those that are written between two
// steps, also on disks that are slow or fail, and under signals.
#include "lockstep/core/clock.hpp"

#include "program.hpp"

#include <algorithm>
#include <csignal>
#include <set>
#include <string_view>
#include <tuple>

#include <fcntl.h>

namespace lockstep::test {
namespace {

constexpr int last_step = 20;
constexpr const char* saved_between_steps =
    "checkpoints are written between two steps: a copy of what a rank";

Words saving_words(const fs::path& run, const Words& more, int steps = last_step) {
    return train_words(train_data(), run, "mlp", 24) +
           typed("--virtual-ranks 4 --max-steps % --checkpoint-every 2steps --log-every 1",
                 {std::to_string(steps)}) +
           Words{"--keep", "last=1000"} + more;
}

Variables with_disk(Variables variables) {
    variables["LD_PRELOAD"] = LOCKSTEP_FAULTY_DISK;
    return variables;
}

// One that does something to `rank` at its call `at`.
Variables faulty_at(const std::string& rank, const std::string& at, const std::string& does) {
    return with_disk(
        {{"FAULTY_DISK_RANK", rank}, {"FAULTY_DISK_AT", at}, {"FAULTY_DISK_DOES", does}});
}

std::set<std::string> checkpoints_of(const fs::path& run) {
    std::set<std::string> names;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(run / "ckpt", missing))
        names.insert(entry.path().filename());
    return names;
}

bool is_saving(const fs::path& run) {
    const auto there = checkpoints_of(run);
    return std::ranges::any_of(there, [](const auto& name) { return name.starts_with(".tmp-"); });
}

// Expects that a run was stopped after it committed what it saved. Returns its step.
std::int64_t expect_saved_end(const fs::path& run) {
    const auto step = state_step(run);
    EXPECT_EQ(state_of(run), fmt::format("checkpointed, step {}, exit 75", step));
    const auto there = checkpoints_of(run);
    EXPECT_TRUE(there.contains(fmt::format("step-{:06}", step)));
    EXPECT_THAT(there, Not(testing::Contains(StartsWith("."))));
    return step;
}

class CheckpointModes : public RunsTest {
  protected:
    ProcessResult trained(const std::string& run,
                          int ranks,
                          const Words& more,
                          const Variables& variables = {}) const {
        return run_lockstep(saving_words(folder_ / run, more) + on_ranks(ranks), variables);
    }

    // What an undisturbed run ends with.
    static const std::string& hash() {
        static const std::string found = [] {
            const TempDir folder;
            return printed_hash(
                run_lockstep(saving_words(folder / "run", {"--checkpoint-mode", "blocking"}) +
                             on_ranks(2))
                    .output);
        }();
        return found;
    }

    void expect_undisturbed_end(const std::string& run, int ranks, const Words& more) const {
        EXPECT_EQ(printed_hash(output_of(trained(run, ranks, more))), hash());
        EXPECT_THAT(run_lockstep({"ckpt", "verify", folder_ / run}), ends(0));
    }

    // On a faulty disk, in the background.
    std::unique_ptr<Background> started(const Words& words, const Words& disk) const {
        return RunsTest::started(
            words, Words{"env", std::string("LD_PRELOAD=") + LOCKSTEP_FAULTY_DISK} + disk);
    }
    const Words all_ = {"--on-nonfinite", "rollback"};  // such a run leaves no period out
};

TEST_F(CheckpointModes, GiveTheSameBytes) {
    for (const int ranks : {1, 3}) {
        const auto name = [&](const char* mode) { return fmt::format("{}{}", mode, ranks); };
        const auto run = [&](const char* mode) {
            const std::string result =
                output_of(trained(name(mode), ranks, all_ + Words{"--checkpoint-mode", mode}));
            EXPECT_EQ(printed_hash(result), hash());
            return result;
        };
        run("blocking");
        EXPECT_THAT(run("overlapped"), Not(has(saved_between_steps)));
        const auto there = checkpoints_of(folder_ / name("blocking"));
        EXPECT_EQ(there.size(), last_step / 2);
        EXPECT_EQ(checkpoints_of(folder_ / name("overlapped")), there);
        for (const std::string& step : there)
            expect_same_files(folder_ / name("overlapped") / "ckpt" / step,
                              folder_ / name("blocking") / "ckpt" / step);
    }
}

// A disk may refuse writes around the page cache, or do a part of one.
TEST_F(CheckpointModes, WriteThroughThePageCacheWhatDoesNotGoAroundIt) {
    folder_.file("probe", "");
    const bool goes_around =
        bool(UniqueFd(::open((folder_ / "probe").c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC)));
    const auto whole_blocks = [&](const std::string& name, const char* does) {
        const fs::path run = folder_ / name;
        EXPECT_THAT(
            run_lockstep(train_words(train_data(), run, "mlp", 24) +
                             typed("--channels 600 --max-steps 8 --checkpoint-every 4steps") +
                             on_ranks(1),
                         with_disk({{"FAULTY_DISK_DIRECT", does},
                                    {"FAULTY_DISK_TRACE", run.string() + "-calls"}})),
            ends(0));
        EXPECT_THAT(run_lockstep({"ckpt", "verify", run}), ends(0));
        const std::string calls = content_of(run.string() + "-calls.0"), block = "write 1048576 ";
        int blocks = 0;
        for (auto at = calls.find(block); at != calls.npos; at = calls.find(block, at + 1))
            ++blocks;
        return blocks;
    };
    EXPECT_EQ(whole_blocks("around", ""), goes_around ? 5 : 0);
    EXPECT_EQ(whole_blocks("refused", "refuse"), goes_around ? 1 : 0)
        << "the refused one, through the cache";
    EXPECT_EQ(whole_blocks("halved", "half"), goes_around ? 1 : 0);
    for (const char* const name : {"refused", "halved"})
        expect_same_files(folder_ / name / "ckpt/step-000004",
                          folder_ / "around" / "ckpt/step-000004");
}

TEST_F(CheckpointModes, SaveBetweenTwoStepsWhereTheCopyHasNoRoom) {
    folder_.file("meminfo", "MemTotal: 16000000 kB\nMemAvailable: 900 kB\n");
    const Variables little = with_disk({{"FAULTY_MEMINFO", (folder_ / "meminfo").string()}});
    const std::string narrow = output_of(trained("run", 2, {}, little));
    EXPECT_EQ(printed_hash(narrow), hash());
    const std::string told = saved_between_steps;
    const auto first = narrow.find(told);
    ASSERT_NE(first, std::string::npos) << narrow;
    EXPECT_EQ(narrow.find(told, first + 1), std::string::npos) << "said once";
    EXPECT_EQ(checkpoints_of(run_).size(), last_step / 2);
    const auto at_steps = [&](const char* name, const std::string& last) {
        return output_of(run_lockstep(
            train_words(train_data(), folder_ / name, "mlp", 24) +
                typed("--max-steps % --checkpoint-every 30steps --log-every 1", {last}),
            little));
    };
    const std::string late = at_steps("late", "40");
    EXPECT_LT(late.find(told), late.find("step 20 | ")) << "before the first one is due: " << late;
    EXPECT_THAT(at_steps("last", "30"), Not(has(told))) << "the last one needs no copy";
}

// Of runs that fail every second, and may spend half of their time on saves.
TEST_F(CheckpointModes, ComeAsOftenAsTheirCostAndTheFailuresSay) {
    const auto words = [&](const char* run, const Words& more, int ranks = 1) {
        return train_words(train_data(), folder_ / run, "mlp", 120) +
               typed("--virtual-ranks 4 --max-steps 600 --keep last=1000", {}) + more +
               on_ranks(ranks);
    };
    const std::string chosen = output_of(run_lockstep(words(
        "chosen", typed("--checkpoint-every auto --mtbf 1s --checkpoint-overhead 0.5", {}), 2)));
    EXPECT_THAT(chosen,
                ContainsRegex("checkpoints: one each [0-9.]+m?s, as a save costs [0-9.]+m?s "
                              "and failures are [0-9.]+s apart; saves then cost [0-9.]+ % of"));
    EXPECT_GE(checkpoints_of(folder_ / "chosen").size(), 2u);
    const auto rare = run_lockstep(words("rare", {"--checkpoint-every", "auto"}));
    EXPECT_EQ(checkpoints_of(folder_ / "rare").size(), 1u) << "the end's";
    EXPECT_EQ(printed_hash(chosen), printed_hash(rare.output));
    EXPECT_THAT(run_lockstep(words("idle", {"--mtbf", "2s"})),
                ends(64, "drop it, or use --checkpoint-every auto"));
}

// Each write takes longer than two steps.
TEST_F(CheckpointModes, LeavePeriodsOutOnASlowDiskAndCountThem) {
    const std::string slow =
        output_of(trained("slow", 2, {}, with_disk({{"FAULTY_DISK_MS", "60"}})));
    EXPECT_EQ(printed_hash(slow), hash());
    EXPECT_THAT(slow, has("is left out, because that of step 2 is still being"));
    EXPECT_THAT(slow, has("(1 left out so far)"));
    EXPECT_THAT(slow, ContainsRegex("[2-9] checkpoints were left out, each because the"));
    const auto there = checkpoints_of(folder_ / "slow");
    EXPECT_LT(there.size(), last_step / 2 - 1);
    EXPECT_TRUE(there.contains(fmt::format("step-{:06}", last_step)));
    EXPECT_THAT(run_lockstep({"ckpt", "verify", folder_ / "slow"}), ends(0));
    EXPECT_THAT(
        trained(
            "between", 2, {"--checkpoint-mode", "blocking"}, with_disk({{"FAULTY_DISK_MS", "3"}})),
        ends(0));
    EXPECT_EQ(checkpoints_of(folder_ / "between").size(), last_step / 2);
}

// Nobody asked for a checkpoint of each short epoch.
TEST_F(CheckpointModes, LeaveUsualPeriodsOutWithoutAWord) {
    const Words words = train_words(train_data(), folder_ / "usual", "mlp", 480) +
                        typed("--virtual-ranks 4 --epochs 12 --keep last=1000", {});
    EXPECT_THAT(run_lockstep(words, with_disk({{"FAULTY_DISK_MS", "5"}})),
                ends(0, Not(has("left out"))));
    EXPECT_LT(checkpoints_of(folder_ / "usual").size(), 12u);
}

// Each step halves the scale and is skipped.
TEST_F(CheckpointModes, AreNotWaitedForWhereAStepIsSkipped) {
    EXPECT_THAT(output_of(trained("run",
                                  2,
                                  typed("--precision fp16 --loss-scale %", {"1073741824"}),
                                  with_disk({{"FAULTY_DISK_MS", "60"}}))),
                has("the checkpoint of step 4 is left out, because that of step 2"));
    EXPECT_EQ(json_lines(run_ / "metrics.jsonl").at(3).at("skipped_steps"), 4);
}

// Also those of a clock; and the job's end waits for the save.
TEST_F(CheckpointModes, LeavePeriodsOfAClockOutAndCountThem) {
    const auto job = started(train_words(train_data(), run_, "mlp", 24) +
                                 typed("--max-steps 1000000 --checkpoint-every 1s", {}),
                             {"FAULTY_DISK_MS=100"});
    const auto is_told = [&] { return output().find("(1 left out so far)") != std::string::npos; };
    EXPECT_TRUE(job->until(is_told));
    job->send(SIGTERM);
    EXPECT_EQ(job->wait(100), 75) << output();
    EXPECT_THAT(output(), ContainsRegex("is still being written after [1-9][0-9.]*s"));
}

TEST_F(CheckpointModes, WarnOfAnOldOneThatStays) {
    EXPECT_THAT(run_lockstep(train_words(train_data(), run_, "mlp", 24) +
                                 typed("--max-steps 2 --checkpoint-every 1steps --keep last=1"),
                             faulty_at("", "1 rename /.trash-", "5")),
                ends(0, "ckpt/step-000001' cannot be removed: Input/output error"));
    EXPECT_EQ(checkpoints_of(run_).size(), 2u);
}

TEST_F(CheckpointModes, WaitForTheSaveInFlightWhenASignalEndsTheRun) {
    for (const char* mode : {"overlapped", "blocking"}) {
        const fs::path run = folder_ / mode;
        const Words more{"--checkpoint-mode", mode};
        const auto job =
            started(saving_words(run, more, 100'000) + on_ranks(2), {"FAULTY_DISK_MS=50"});
        EXPECT_TRUE(job->until([&] { return is_saving(run); }));
        job->send(SIGTERM);
        EXPECT_EQ(job->wait(120), 75) << output();
        if (expect_saved_end(run) < last_step) expect_undisturbed_end(mode, 1, more);
    }
}

TEST_F(CheckpointModes, WaitForTheSaveInFlightBeforeTheDeadline) {
    const auto deadline = static_cast<std::int64_t>(unix_time_s()) + 10;
    EXPECT_THAT(run_lockstep(saving_words(run_, {"--deadline", std::to_string(deadline)}, 100'000) +
                                 on_ranks(2),
                             with_disk({{"FAULTY_DISK_MS", "50"}})),
                ends(75, "the same command goes on from there"));
    const Json state = read_json(run_ / "state.json");
    EXPECT_EQ(state.at("reason"), "stopped before its deadline");
    EXPECT_LT(parse_utc(state.at("updated").get<std::string>()).value(),
              static_cast<double>(deadline));
    expect_saved_end(run_);
    EXPECT_THAT(run_lockstep({"ckpt", "verify", run_}), ends(0));
}

// At the end of the run one rank waits for the other one; after a signal both wait for the disk.
TEST_F(CheckpointModes, EndARunWhoseDiskNeverAnswers) {
    const Words more{"--comm-timeout", "2s"};
    const std::string told = "fix: check the file system of the run's folder, which does not take";
    EXPECT_THAT(trained("end", 2, more, faulty_at("1", "2 fsync /shard-", "hang")),
                ends(76, "rank 1 last finished", "is writing a checkpoint since", told));
    EXPECT_TRUE(checkpoints_of(folder_ / "end").contains("step-000002"));
    expect_undisturbed_end("end", 1, more);

    const fs::path run = folder_ / "signal";
    const Words blocking = Words{"--checkpoint-mode", "blocking", "--comm-timeout", "5s"};
    const auto job = started(saving_words(run, blocking) + on_ranks(2),
                             {"FAULTY_DISK_AT=2 fsync /shard-", "FAULTY_DISK_DOES=hang"});
    EXPECT_TRUE(job->until([&] { return checkpoints_of(run).contains(".tmp-step-000004-i1"); }));
    job->send(SIGTERM);
    const double begin = now_s();
    EXPECT_EQ(job->wait(120), 76) << output();
    EXPECT_LT(now_s() - begin, 18) << "not four times as long";
    EXPECT_THAT(output(), has(told));
    EXPECT_TRUE(checkpoints_of(run).contains("step-000002"));
    expect_undisturbed_end("signal", 1, blocking);
}

// A shard of the newest is lost, and a byte of the one before changes.
TEST_F(CheckpointModes, GoOnFromTheNewestWholeCheckpoint) {
    EXPECT_THAT(trained("run", 2, all_, faulty_at("0", "4 rename /ckpt/step-", "kill")), ends(76));
    const fs::path saved = run_ / "ckpt", flipped = "shard-00000-of-00002.safetensors";
    EXPECT_TRUE(fs::remove(saved / "step-000006/shard-00001-of-00002.safetensors"));
    flip_last_byte(saved / "step-000004" / flipped);
    EXPECT_THAT(run_lockstep({"ckpt", "verify", run_}), fails());
    const std::string resumed = output_of(trained("run", 3, all_));
    EXPECT_THAT(resumed, has("checkpoint step-000006 is skipped: cannot open"));
    EXPECT_THAT(resumed,
                has("checkpoint step-000004 is skipped: ", "resumed from step 2 (epoch 0)\n"));
    EXPECT_EQ(printed_hash(resumed), hash());
    EXPECT_THAT(run_lockstep({"ckpt", "verify", run_}), ends(0));
}

// It is pending until the save is committed, many steps later.
TEST_F(CheckpointModes, AnswerARequestByOneSave) {
    const auto job = started(train_words(train_data(), run_, "mlp", 24) +
                                 typed("--virtual-ranks 4 --max-steps 100000 --log-every 1 "
                                       "--checkpoint-every never",
                                       {}) +
                                 on_ranks(2),
                             {"FAULTY_DISK_MS=60"});
    EXPECT_TRUE(job->trains(run_));
    EXPECT_THAT(run_lockstep({"save", run_}), ends(0));
    EXPECT_TRUE(job->trains(run_, newest_step(run_) + 49));
    EXPECT_THAT(run_lockstep({"stop", run_, "--now"}), ends(0));
    EXPECT_EQ(job->wait(100), 130) << output();
    EXPECT_EQ(checkpoints_of(run_).size(), 1u);
}

TEST_F(CheckpointModes, SaveBetweenTwoStepsWhereNoThreadCanBeMade) {
    const auto job = started(train_words(train_data(), run_, "mlp", 24) +
                                 typed("--max-steps 1000000 --checkpoint-every never", {}),
                             {"FAULTY_THREADS=" + (folder_ / "refusal").string()});
    EXPECT_TRUE(job->trains(run_));
    folder_.file("refusal", "");
    EXPECT_THAT(run_lockstep({"save", run_}), ends(0));
    EXPECT_THAT(output(),
                has("checkpoints are written between two steps: the system refuses this "
                    "process memory or threads"));
    EXPECT_THAT(run_lockstep({"stop", run_, "--now"}), ends(0));
    EXPECT_EQ(job->wait(100), 130) << output();
    EXPECT_EQ(checkpoints_of(run_).size(), 1u);
}

struct DiskFault {
    const char* name;
    const char* does;
    const char* rank;
    const char* at;  ///< call of the second save
    int exit_code;
    const char* says;
};

class CheckpointModesOnDisks
    : public CheckpointModes,
      public testing::WithParamInterface<std::tuple<const char*, DiskFault>> {};

// From that call on; what was committed before stays, and the run goes on from there, where it is
// moved to another file system, too.
TEST_P(CheckpointModesOnDisks, EndTheRunWithWhatToDoAndLoseNothing) {
    const auto [mode, fault] = GetParam();
    const Words more = all_ + Words{"--checkpoint-mode", mode};
    EXPECT_THAT(trained("run", 2, more, faulty_at(fault.rank, fault.at, fault.does)),
                ends(fault.exit_code, fault.says));
    const auto there = checkpoints_of(run_);
    EXPECT_THAT(there, testing::Contains("step-000002"));
    EXPECT_THAT(there, Not(testing::Contains("step-000004")));
    EXPECT_THAT(run_lockstep({"ckpt", "verify", run_}), ends(0));
    fs::rename(run_, folder_ / "moved");
    expect_undisturbed_end("moved", 1, more);
}

constexpr const char* room = "fix: free space there, or move the run's folder to a file system";

std::string fault_name(const testing::TestParamInfo<std::tuple<const char*, DiskFault>>& info) {
    return std::string(std::get<1>(info.param).name) +
           (std::get<0>(info.param) == std::string_view("blocking") ? "Between" : "Beside");
}

INSTANTIATE_TEST_SUITE_P(
    ,
    CheckpointModesOnDisks,
    testing::Combine(
        testing::Values("overlapped", "blocking"),
        testing::Values(DiskFault{"Full", "28", "1", "2 write /pieces-", 73, room},
                        DiskFault{"FullAtCommit", "28", "0", "2 write /manifest.json", 73, room},
                        DiskFault{"Broken", "5", "0", "2 fsync /shard-", 74, "fails: see dmesg"},
                        DiskFault{"ReadOnly",
                                  "30",
                                  "0",
                                  "2 mkdir /.tmp-",
                                  73,
                                  "fix: let this user write there again, or move the run's folder"},
                        DiskFault{"Killed", "kill", "1", "2 fsync /shard-", 76, "E660"})),
    fault_name);

}  // namespace
}  // namespace lockstep::test
