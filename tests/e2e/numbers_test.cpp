// SPDX-License-Identifier: Apache-2.0
// What the environment says of threads, kernels and numbers changes no bit, or is refused by name;
// ranks and starts that compute other bits are told apart before they train together. Training in
// 16 bits gives the same ones on any number of ranks, after overflows and after a resume.
#include "program.hpp"

namespace lockstep::test {
namespace {

// Convolutions, batch norm and dropout on two threads.
Words train_on_two_threads(const fs::path& run) {
    return train_words(train_data(), run, "cnn-bn", 24) +
           Words{"--virtual-ranks", "2", "--threads", "2"};
}

Words up_to(int count) {
    return {"--max-steps", std::to_string(count)};
}

Variables other_numbers(const std::string& what) {
    return {{"LD_PRELOAD", LOCKSTEP_OTHER_NUMBERS}, {"OTHER_NUMBERS", what}};
}

class Numbers : public RunsTest {
  protected:
    ProcessResult start(int last_step,
                        const Variables& variables = {},
                        const Words& more = {}) const {
        return run_lockstep(
            train_on_two_threads(run_) + up_to(last_step) + Words{"--np", "1"} + more, variables);
    }

    static const std::string& undisturbed_hash() {
        static const std::string hash = [] {
            const TempDir folder;
            const Words words =
                train_on_two_threads(folder / "run") + up_to(2) + Words{"--np", "1"};
            return printed_hash(run_lockstep(words).output);
        }();
        return hash;
    }
};

TEST_F(Numbers, VariablesThatAreTakenBackChangeNoBit) {
    const std::string result = output_of(start(2,
                                               {{"OMP_DYNAMIC", "true"},
                                                {"OMP_NUM_THREADS", "1"},
                                                {"MKL_NUM_THREADS", "1"},
                                                {"MKL_DYNAMIC", "true"},
                                                {"MKL_CBWR", "SSE4_2"},
                                                {"MKL_ENABLE_INSTRUCTIONS", "SSE4_2"},
                                                {"ONEDNN_MAX_CPU_ISA", "SSE41"},
                                                {"DNNL_DEFAULT_FPMATH_MODE", "ANY"},
                                                {"ATEN_CPU_CAPABILITY", "default"},
                                                {"TORCH_MKLDNN_MATMUL_MIN_SIZE", "1"},
                                                {"CUDNN_CONV_WSCAP_DBG", "64"},
                                                {"MALLOC_PERTURB_", "85"}}));
    for (const char* setting : {"DNNL_DEFAULT_FPMATH_MODE=ANY", "CUDNN_CONV_WSCAP_DBG=64"})
        EXPECT_THAT(result,
                    has(std::string(setting) + " is ignored: it could decide the run's bits"));
    ASSERT_EQ(undisturbed_hash().size(), 32u);
    EXPECT_EQ(printed_hash(result), undisturbed_hash());
}

struct Refusal {
    const char* name;
    Variables variables;
    const char *code, *named;
};

class RefusedNumbers : public Numbers, public testing::WithParamInterface<Refusal> {};

TEST_P(RefusedNumbers, AreNamedAndLeaveNoRun) {
    EXPECT_THAT(start(1, GetParam().variables),
                ends(78, std::string("lockstep: error ") + GetParam().code, GetParam().named));
    EXPECT_FALSE(fs::exists(run_));
}

INSTANTIATE_TEST_SUITE_P(
    ,
    RefusedNumbers,
    testing::Values(
        Refusal{"FewerThreads", {{"OMP_THREAD_LIMIT", "1"}}, "E706", "OMP_THREAD_LIMIT=1 is set"},
        Refusal{"NoTeams", {{"OMP_MAX_ACTIVE_LEVELS", "0"}}, "E706", "OpenMP gives 1 of 2 threads"},
        Refusal{"FlushedToZero", other_numbers("flush"), "E708", "flushed to zero"},
        Refusal{"KernelsOfTheCLibrary",
                {{"GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA_Usable"}},
                "E709",
                "GLIBC_TUNABLES is 'glibc.cpu.hwcaps"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(Numbers, OfOneRankThatAreOthersAreRefused) {
    const Words words = Words{program()} + train_on_two_threads(run_) + up_to(1);
    const Words bent = typed("env % OTHER_NUMBERS=pow ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE",
                             {std::string("LD_PRELOAD=") + LOCKSTEP_OTHER_NUMBERS});
    EXPECT_THAT(
        run_process(mpirun_words(1) + words + Words{":", "-np", "1"} + bent + words, {}, 240),
        ends(78,
             "E707: ranks compute 2 different results",
             "LD_PRELOAD is not set on rank 0 and '"));
    EXPECT_FALSE(fs::exists(run_));
}

// The same variables without the bent library: what is taken back is no reason to refuse.
TEST_F(Numbers, OfOneRankWithOtherVariablesAreTheSame) {
    const Words words = Words{program()} + train_on_two_threads(run_) + up_to(2);
    const Words bent = {
        "env", "ONEDNN_MAX_CPU_ISA=SSE41", "MKL_CBWR=COMPATIBLE", "ATEN_CPU_CAPABILITY=default"};
    const std::string result = output_of(
        run_process(mpirun_words(1) + words + Words{":", "-np", "1"} + bent + words, {}, 240));
    EXPECT_EQ(printed_hash(result), undisturbed_hash());
}

TEST_F(Numbers, OfALaterStartThatAreOthersAreRefusedUntilAccepted) {
    ASSERT_THAT(start(1), ends(0));
    EXPECT_THAT(start(2, other_numbers("pow")), ends(78, "E710: run '"));
    EXPECT_THAT(start(2, other_numbers("pow"), {"--accept-other-bits"}), ends(0, "; accepted"));
    EXPECT_THAT(start(3, other_numbers("pow")), ends(0)) << "it goes on from what was accepted";
    EXPECT_THAT(start(4), ends(78));
}

// A checkpoint knows the settings that decide its bits, whatever became of run.json.
TEST_F(Numbers, AreOfTheCheckpointsSettingsWithoutTheRunsRecord) {
    ASSERT_THAT(start(1), ends(0));
    fs::remove(run_ / "run.json");
    EXPECT_THAT(start(2, {}, {"--lr", "0.01"}), ends(78, "lr is 0.001 in the run, now 0.01"));
    EXPECT_FALSE(fs::exists(run_ / "run.json"));
    EXPECT_EQ(printed_hash(output_of(start(2))), undisturbed_hash());
}

ProcessResult verify_precision(const Words& options) {
    return run_lockstep(Words{"verify", "--data", train_data()} +
                        Words{"--batch", "48", "--virtual-ranks", "4"} + options);
}

struct Case {
    std::string precision, model, steps;
};

// LibTorch 2.11 takes seconds for a step of a convolution's gradients in fp16.
class EveryPrecision : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Precisions,
                         EveryPrecision,
                         testing::Values(Case{"bf16", "cnn-bn", "3"}, Case{"fp16", "mlp", "6"}),
                         [](const auto& one) { return one.param.precision; });

TEST_P(EveryPrecision, IsEqualOnAnyNumberOfRanks) {
    const Words model = {"--model", GetParam().model};
    const Words precision = {"--precision", GetParam().precision};
    const Words steps = {"--steps", GetParam().steps};
    const std::string reduced =
        output_of(verify_precision(Words{"--ranks", "1,3,4"} + model + steps + precision));
    EXPECT_THAT(reduced, EndsWith("equal: the same bits for every number of ranks (V = 4)\n"));
    const std::string whole = output_of(verify_precision(Words{"--ranks", "1,2"} + model + steps));
    const std::string heads_and_first = whole.substr(0, whole.find("\n    2  "));
    EXPECT_THAT(reduced, Not(StartsWith(heads_and_first)));
    const Words plain = {"--ranks", "1,2", "--steps", "6", "--plain"};
    EXPECT_THAT(verify_precision(plain + model + precision), says("different"));
}

TEST(TokensIn16Bits, AreEqualOnAnyNumberOfRanks) {
    const TempDir folder;
    output_of(run_lockstep(typed(
        "data synth --out % --kind text --size 16 --classes 12 --samples 100", {folder / "data"})));
    for (const char* precision : {"bf16", "fp16"})
        EXPECT_THAT(output_of(run_lockstep(typed(
                        "verify --data % --precision % --ranks 1,3 --batch 48 --virtual-ranks 4 "
                        "--steps 3 --model gpt --layers 1 --heads 2 --width 32",
                        {folder / "data", precision}))),
                    EndsWith("equal: the same bits for every number of ranks (V = 4)\n"));
}

class Overflows : public RunsTest {
  protected:
    // A first factor that overflows for some steps.
    ProcessResult train(const std::string& run, int ranks, int steps) {
        return run_lockstep(train_words(train_data(), folder_ / run, "mlp", 40) +
                            typed("--virtual-ranks 4 --precision fp16 --loss-scale 1073741824 "
                                  "--clip-norm 1 --log-every 1 --max-steps %",
                                  {std::to_string(steps)}) +
                            on_ranks(ranks));
    }
};

TEST_F(Overflows, AreSkippedUntilTheScaleFits) {
    const std::string straight = output_of(train("straight", 1, 16));
    const std::vector<Json> lines = json_lines(folder_ / "straight/metrics.jsonl");
    EXPECT_EQ(lines.front().at("loss_scale"), 536'870'912.0);
    EXPECT_TRUE(lines.front().at("loss").is_number());
    const auto skipped = lines.back().at("skipped_steps").get<int>();
    EXPECT_GT(skipped, 3);
    EXPECT_LT(skipped, 16);
    EXPECT_EQ(lines.back().at("loss_scale").get<double>(), 1073741824.0 / (1 << skipped));
    EXPECT_THAT(straight, has("the loss is scaled by"));

    // In the midst of what overflows, too, and on another number of ranks.
    EXPECT_THAT(train("resumed", 2, 3), ends(0));
    EXPECT_THAT(train("resumed", 3, 16), ends(0));
    EXPECT_EQ(printed_hash(train("resumed", 3, 16).output), printed_hash(straight));
}

TEST_F(Overflows, NeedAScaleThatCanFollowThem) {
    for (const char* scale : {"3", "1000"}) {
        EXPECT_THAT(
            run_lockstep(typed("train --data % --run % --precision fp16 --loss-scale %",
                               {train_data(), folder_ / "refused", scale})),
            ends(64,
                 fmt::format("error E107: --loss-scale {} does not go with --precision fp16",
                             scale)));
        EXPECT_FALSE(fs::exists(folder_ / "refused"));
    }
}

}  // namespace
}  // namespace lockstep::test
