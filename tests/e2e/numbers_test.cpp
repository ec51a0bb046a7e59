// SPDX-License-Identifier: Apache-2.0
// What the environment says of threads, kernels and numbers changes no bit, or is refused by name;
// ranks and starts that compute other bits are told apart before they train together.
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

}  // namespace
}  // namespace lockstep::test
