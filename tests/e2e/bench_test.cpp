// SPDX-License-Identifier: Apache-2.0
// `lockstep bench comm` as users call it: what it prints, and how it fails.
#include "program.hpp"

namespace lockstep::test {
namespace {

const Words quick = {"bench", "comm", "-b", "8", "-e", "4KiB", "-f", "8", "-n", "2", "-w", "1"};

ProcessResult bench(int ranks, const Words& more) {
    return run_lockstep(quick + Words{"--np", std::to_string(ranks), "--oversubscribe"} + more);
}

std::string bench_output(int ranks, const Words& more) {
    return output_of(bench(ranks, more));
}

TEST(BenchComm, PrintsNcclTestsColumnsAndAVerdict) {
    const std::string text = bench_output(2, {"--beside", "all"});
    EXPECT_THAT(text, StartsWith("# lockstep "));
    EXPECT_THAT(text, ContainsRegex("size +count +algo +time +best +algbw +busbw +#wrong"));
    for (const char* method :
         {"lockstep", "ring", "recursive-doubling", "tree", "parameter-server"})
        EXPECT_THAT(text, ContainsRegex(std::string("512 +128 +") + method + " .* 0\n"));
    EXPECT_THAT(text, has("# times as fast as open-mpi", "\n# lockstep (shared memory)\n"));
    EXPECT_THAT(text,
                ContainsRegex("\nverdict: every sum is exact; [a-z-]+ is the fastest at .*; "
                              "lockstep is [0-9.]+ \\(at .* times as fast as open-mpi\n"));
    EXPECT_THAT(text, Not(has("\x1b")));
}

TEST(BenchComm, MeasuresOneRankAndThree) {
    for (const int ranks : {1, 3}) {
        const std::string text = bench_output(ranks, {"--beside", "parameter-server"});
        for (const char* method : {"lockstep", "parameter-server"})
            EXPECT_THAT(text, ContainsRegex(std::string("512 +128 +") + method + " .* 0\n"));
        EXPECT_THAT(text, Not(has("open-mpi")));
    }
}

TEST(BenchComm, SpeaksJson) {
    const std::string text = bench_output(2, {"--json", "--beside", "tree,open-mpi"});
    const Json report = parse_json(text, "bench comm --json");
    EXPECT_EQ(report["ranks"], 2);
    EXPECT_EQ(report["transport"], "shared memory");
    ASSERT_EQ(report["results"].size(), 12u);
    const Json& first = report["results"][0];
    EXPECT_EQ(first["algo"], "lockstep");
    EXPECT_EQ(first["bytes"], 8);
    EXPECT_EQ(first["wrong"], 0);
    EXPECT_GT(first["best_us"].get<double>(), 0.0);
    EXPECT_GT(first["times_open_mpi"].get<double>(), 0.0);
}

TEST(BenchComm, RunsUnderMpirunAndSplitsByNode) {
    EXPECT_THAT(run_under_mpirun(2, quick + Words{"--split", "intra", "--beside", "ring"}),
                ends(0, "split intra"));
}

TEST(BenchComm, NeedsTwoNodesBetweenNodes) {
    EXPECT_THAT(bench(2, {"--split", "inter"}),
                ends(64, "error E653: --split inter leaves a group of one rank"));
}

TEST(BenchComm, FailsBelowTheBandwidthAskedFor) {
    EXPECT_THAT(bench(2, {"--beside", "none", "--min-busbw", "100000"}),
                ends(69, "verdict: ", ContainsRegex("error E652: lockstep reaches [0-9.]+ GB/s")));
    EXPECT_THAT(bench(2, {"--beside", "none", "--min-busbw", "0.000001"}), ends(0));
}

TEST(BenchComm, RefusesMoreThanTheMemory) {
    EXPECT_THAT(run_lockstep({"bench", "comm", "--np", "2", "--oversubscribe", "-e", "100TiB"}),
                ends(64, "error E650: buffers of ", ContainsRegex("why: it has [0-9.]+ .iB")));
}

}  // namespace
}  // namespace lockstep::test
