// SPDX-License-Identifier: Apache-2.0
// Training on GPUs, which are simulated (tests/simcuda): the program is the one that users run.
#include "lockstep/core/clock.hpp"

#include "program.hpp"
#include "run_files.hpp"
#include "small_data.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

using testing::HasSubstr;

// As tests/simcuda/environment has it.
Variables with_gpus(const Variables& more = {}) {
    const std::string folder = LOCKSTEP_SIMCUDA, library = folder + "/libsimcuda.so";
    Variables all = {{"LD_LIBRARY_PATH", folder},
                     {"LOCKSTEP_CUDA_LIB", library},
                     {"LOCKSTEP_NCCL_LIB", library},
                     {"LOCKSTEP_TORCH_CUDA_LIB", library}};
    all.insert(more.begin(), more.end());
    return all;
}

Words on_ranks(int ranks) {
    return {"--np", std::to_string(ranks), "--oversubscribe"};
}

Words train(const fs::path& run, const Words& more, const std::string& steps = "6") {
    return Words{"train",
                 "--data",
                 SmallData::get().train(),
                 "--run",
                 run,
                 "--batch",
                 "24",
                 "--virtual-ranks",
                 "4",
                 "--max-steps",
                 steps,
                 "--checkpoint-every",
                 "2steps"} +
           more;
}

ProcessResult verify(const Words& options, const Variables& variables = {}) {
    return run_lockstep(Words{"verify",
                              "--data",
                              SmallData::get().train(),
                              "--device",
                              "cuda",
                              "--steps",
                              "4",
                              "--batch",
                              "24",
                              "--virtual-ranks",
                              "4"} +
                            options,
                        with_gpus(variables));
}

void expect_equal(const ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("equal: the same bits for every number of ranks"));
}

TEST(Device, GivesEqualBitsOnAnyNumberOfGpus) {
    expect_equal(verify({"--ranks", "1,2,3,4", "--model", "cnn-bn"}));
}

TEST(Device, GivesEqualBitsWithEachOptimizer) {
    for (const char* optimizer : {"adamw", "sgd", "lars", "lamb"})
        expect_equal(verify({"--ranks",
                             "1,2",
                             "--model",
                             "mlp",
                             "--optimizer",
                             optimizer,
                             "--weight-decay",
                             "0.01",
                             "--ema",
                             "0.9",
                             "--clip-norm",
                             "1"}));
}

TEST(Device, GivesEqualBitsInHalfPrecision) {
    expect_equal(verify({"--ranks", "1,2", "--model", "mlp", "--precision", "fp16"}));
}

TEST(Device, GivesOtherBitsWithPlainSums) {
    const auto result = verify({"--ranks", "1,2,4", "--model", "cnn", "--plain"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("different, as ordinary summation"));
}

// Work of every stream is late by up to half a millisecond.
TEST(Device, GivesTheSameBitsHoweverLateItsStreamsAre) {
    const Words words = {"--ranks", "1,2", "--model", "cnn-bn"};
    const auto prompt = verify(words);
    expect_equal(prompt);
    for (const char* seed : {"1", "2"}) {
        const auto late = verify(words, {{"SIMCUDA_DELAY_US", "500"}, {"SIMCUDA_SEED", seed}});
        EXPECT_EQ(late.output, prompt.output);
    }
}

TEST(Device, ResumesOnAnotherNumberOfGpus) {
    const TempDir folder;
    const Words words = {"--device", "cuda", "--model", "cnn-bn", "--optimizer", "adamw"};
    const auto whole = run_lockstep(train(folder / "whole", words + on_ranks(3)), with_gpus());
    EXPECT_EQ(whole.exit_code, 0) << whole.output;
    EXPECT_THAT(whole.output, HasSubstr("by nccl"));
    const auto cut = run_lockstep(train(folder / "cut", words + on_ranks(2), "3"), with_gpus());
    EXPECT_THAT(cut.output, HasSubstr("leaves: 2 a rank of 6 samples, computed together"));
    const auto resumed = run_lockstep(train(folder / "cut", words + on_ranks(4)), with_gpus());
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from step"));
    EXPECT_EQ(printed_hash(resumed.output), printed_hash(whole.output));
    // Where the weights are decides bits.
    const auto on_cpus = run_lockstep(
        train(folder / "cut", Words{"--device", "cpu", "--model", "cnn-bn"} + on_ranks(2)));
    EXPECT_EQ(on_cpus.exit_code, 78) << on_cpus.output;
    EXPECT_THAT(on_cpus.output, HasSubstr("device"));
}

struct Fault {
    std::string variable, value, code, says;
};

// On rank 1 of two, in the middle of training but where its start cannot go well. The first rank to
// say so ends the others: E682 repeats it.
TEST(Device, NamesWhatGoesWrongAndGoesOnFromTheLastCheckpoint) {
    const TempDir folder;
    const Words words = {"--device", "cuda", "--model", "mlp", "--comm-timeout", "3s"};
    const auto whole = run_lockstep(train(folder / "whole", words + on_ranks(2)), with_gpus());
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    for (const Fault& fault :
         {Fault{"SIMCUDA_KILL", "1:14", "E660", "rank 1"},
          Fault{"SIMCUDA_HANG", "1:14", "(E678|E682)", "'gradients' did not end within 3.0s"},
          Fault{"SIMCUDA_LOST", "1:200", "(E681|E682)", "rank 1"},  // in a rehearsal
          Fault{"SIMCUDA_LOST", "1:1500", "(E681|E682)", "rank 1"},
          Fault{"SIMCUDA_MEMORY", "1:1000000", "(E696|E682)", "rank 1"},
          Fault{"SIMCUDA_NCCL_VERSION", "1:22703", "E674", "2.27.3 on rank 1"},
          Fault{"SIMCUDA_GPUS", "1", "E608", "would share GPU"}}) {
        const fs::path run = folder / (fault.variable + fault.value);
        const double begin_s = now_s();
        const auto failed = run_lockstep(train(run, words + on_ranks(2)),
                                         with_gpus({{fault.variable, fault.value}}));
        EXPECT_LT(now_s() - begin_s, 15 + 5) << fault.variable;
        EXPECT_NE(failed.exit_code, 0);
        EXPECT_THAT(failed.output, testing::ContainsRegex("error " + fault.code + ": "))
            << fault.variable;
        EXPECT_THAT(failed.output, HasSubstr(fault.says));
        const auto again = run_lockstep(train(run, words + on_ranks(2)), with_gpus());
        EXPECT_EQ(printed_hash(again.output), printed_hash(whole.output)) << again.output;
    }
}

// Of a GPU that holds one leaf's pass, but not that of all leaves.
TEST(Device, ComputesLeavesOneByOneWhereItsMemoryEnds) {
    const TempDir folder;
    const auto result = [&](const std::string& name, const Variables& variables) {
        return run_lockstep(Words{"train",
                                  "--data",
                                  SmallData::get().train(),
                                  "--run",
                                  folder / name,
                                  "--device",
                                  "cuda",
                                  "--model",
                                  "cnn",
                                  "--batch",
                                  "256",
                                  "--virtual-ranks",
                                  "8",
                                  "--max-steps",
                                  "2"} +
                                on_ranks(2),
                            with_gpus(variables));
    };
    const auto roomy = result("roomy", {});
    EXPECT_THAT(roomy.output, HasSubstr("computed together"));
    const auto narrow = result("narrow", {{"SIMCUDA_MEMORY", "80000000"}});
    EXPECT_EQ(narrow.exit_code, 0) << narrow.output;
    EXPECT_THAT(narrow.output,
                HasSubstr("computed one by one: comparing takes more than the GPU's memory"));
    EXPECT_EQ(printed_hash(narrow.output), printed_hash(roomy.output));
}

TEST(Device, IsAGpuByItselfWhereEachRankHasOne) {
    const TempDir folder;
    const auto run = run_lockstep(
        train(folder / "run",
              Words{"--model", "mlp", "--test-data", SmallData::get().test()} + on_ranks(2)),
        with_gpus());
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("by nccl"));
    const auto two_on_one =
        run_lockstep(train(folder / "shared", Words{"--model", "mlp"} + on_ranks(2)),
                     with_gpus({{"SIMCUDA_GPUS", "1"}}));
    EXPECT_EQ(two_on_one.exit_code, 0) << two_on_one.output;
    EXPECT_THAT(two_on_one.output, HasSubstr("GPUs are left idle"));
}

TEST(Device, IsRefusedWhereThereIsNone) {
    const TempDir folder;
    const auto result = run_lockstep(train(folder / "run", {"--device", "cuda"}));
    EXPECT_THAT(result.output, HasSubstr("error E670"));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace lockstep::test
