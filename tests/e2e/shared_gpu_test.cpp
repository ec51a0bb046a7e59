// SPDX-License-Identifier: Apache-2.0
// Ranks that share one GPU, where they are told to: one simulated GPU, whose NCCL goes by MPI. That
// bits are equal on any number of them, simcuda/gpu_training shows.
#include "program.hpp"
#include "simulated_gpus.hpp"

namespace lockstep::test {
namespace {

ProcessResult on_one_gpu(const Words& words, Variables variables = {}) {
    variables.insert({"SIMCUDA_GPUS", "1"});
    return run_lockstep(words, with_gpus(variables));
}

Words two_ranks(const fs::path& run, const Words& more) {
    return typed(
               "train --data % --run % --model mlp --max-steps 4 --log-every 1 --np 2 "
               "--oversubscribe",
               {train_data(), run}) +
           more;
}

TEST(SharedGpu, IsATrialWhichTheLogSaysOnceAndHasTheTimeOfCopiesInItsMetrics) {
    const TempDir folder;
    const std::string run =
        output_of(on_one_gpu(two_ranks(folder / "run", {"--device", "cuda", "--share-gpu"})));
    const std::string warning = "warn: 2 ranks share 1 GPU(s) by NCCL_HOSTID: a trial of bits, ";
    const auto first = run.find(warning);
    ASSERT_NE(first, std::string::npos) << run;
    EXPECT_EQ(run.find(warning, first + 1), std::string::npos);
    EXPECT_THAT(run, has("network: 2 ranks on 2 nodes: sockets (lo) between"));
    const auto on_gpu = json_lines(folder / "run/metrics.jsonl");
    ASSERT_EQ(on_gpu.size(), 4u);
    EXPECT_EQ(on_gpu.front().at("copy_s").get<double>(), 0);
    for (std::size_t step = 1; step < on_gpu.size(); ++step)
        EXPECT_GT(on_gpu[step].at("copy_s").get<double>(), 0);
    on_one_gpu(two_ranks(folder / "cpu", {"--device", "cpu"}));
    for (const Json& line : json_lines(folder / "cpu/metrics.jsonl"))
        EXPECT_FALSE(line.contains("copy_s"));
}

TEST(SharedGpu, IsRefusedUnlessAskedFor) {
    const TempDir folder;
    EXPECT_THAT(on_one_gpu(two_ranks(folder / "a", {"--device", "cuda"})),
                says("error E608", "--share-gpu for a test"));
    // What the user has set stays, and NCCL would refuse it.
    EXPECT_THAT(on_one_gpu(two_ranks(folder / "b", {"--device", "cuda", "--share-gpu"}),
                           {{"NCCL_HOSTID", "one"}}),
                says("error E673: ranks 0 and 1 use the same GPU"));
    EXPECT_THAT(on_one_gpu(two_ranks(folder / "c", {"--share-gpu"})),
                says("error E107: --share-gpu has no effect"));
}

}  // namespace
}  // namespace lockstep::test
