// SPDX-License-Identifier: Apache-2.0
// Commands that try the machine, as users call them: what `bench comm` prints, and how it fails;
// quick faults of `drill` that have to pass, what is skipped, and nothing left after Ctrl-C; and
// `tune` on a tiny training: what it tries, what it leaves, and the file it writes.
#include "program.hpp"

#include <csignal>

namespace lockstep::test {
namespace {

const Words quick = {"bench", "comm", "-b", "8", "-e", "4KiB", "-f", "8", "-n", "2", "-w", "1"};

ProcessResult bench(int ranks, const Words& more) {
    return run_lockstep(quick + Words{"--np", std::to_string(ranks), "--oversubscribe"} + more);
}

TEST(BenchComm, PrintsNcclTestsColumnsAndAVerdict) {
    const std::string text = output_of(bench(2, {"--beside", "all"}));
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
        const std::string text = output_of(bench(ranks, {"--beside", "parameter-server"}));
        for (const char* method : {"lockstep", "parameter-server"})
            EXPECT_THAT(text, ContainsRegex(std::string("512 +128 +") + method + " .* 0\n"));
        EXPECT_THAT(text, Not(has("open-mpi")));
    }
}

TEST(BenchComm, SpeaksJson) {
    const std::string text = output_of(bench(2, {"--json", "--beside", "tree,open-mpi"}));
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

TEST(Drill, SeesAKilledRankEndAsItShould) {
    const TempDir scratch, out;
    EXPECT_THAT(run_lockstep(Words{"drill", "--fault", "killed-rank,node-loss"} +
                             Words{"--scratch", scratch.path(), "--json"} +
                             Words{"--out", out / "page.json"}),
                ends(0));
    const Json page = read_json(out / "page.json");
    EXPECT_EQ(page["passed"].get<int>(), 1) << page;
    EXPECT_EQ(page["skipped"].get<int>(), 1) << page;
    EXPECT_EQ(page["faults"][0]["fault"].get<std::string>(), "killed-rank");
    EXPECT_THAT(page["faults"][0]["done"].get<std::string>(), has("kill -9 of rank 1"));
    EXPECT_EQ(page["faults"][0]["expectations"].size(), 4u) << page;
    EXPECT_THAT(page["faults"][1]["why_skipped"].get<std::string>(), has("two nodes"));
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Drill, LeavesNothingAfterCtrlC) {
    const TempDir scratch, out;
    Background drill({program(), "drill", "--fault", "killed-rank", "--scratch", scratch.path()},
                     out / "said");
    const auto trains = [&] {
        for (const auto& entry : fs::directory_iterator(scratch.path()))
            if (fs::exists(entry.path() / "undisturbed" / "incarnation")) return true;
        return false;
    };
    ASSERT_TRUE(eventually(trains)) << read_file(out / "said");
    drill.send(SIGINT);
    EXPECT_EQ(drill.wait(60), 130) << read_file(out / "said");
    EXPECT_TRUE(fs::is_empty(scratch.path()));
    EXPECT_TRUE(eventually([&] { return processes_with(scratch.path()).empty(); }, 30));
}

TEST(Drill, SaysWhatIsWrongWithItsOptions) {
    const TempDir folder;
    const auto code_of = [](const Words& words) { return run_lockstep(Words{"drill"} + words); };
    EXPECT_THAT(code_of({"--out", folder / "none" / "page.md"}), says("error E401: "));
    EXPECT_THAT(code_of({"--out", folder.path()}), says("it is a folder"));
    EXPECT_THAT(code_of({"--scratch", folder / "none"}), says("error E401: "));
    EXPECT_THAT(code_of({"--np", "1"}), says("error E102: "));
    EXPECT_THAT(code_of({"--fault", "killed-rnk"}), says("'killed-rank'"));
    EXPECT_THAT(code_of({"--killed-rank"}), says("fix: --fault killed-rank"));
}

Words tune(const fs::path& out) {
    return Words{"tune", train_data(), "--model", "mlp", "--batch", "48"} + Words{"--out", out};
}

// The gain is the machine's; that equal bits were seen, and by how many trainings, is not.
TEST(Tune, TriesInTurnsAndProvesThatNoBitChanges) {
    const TempDir folder;
    const std::string result =
        output_of(run_lockstep(tune(folder / "tuned.toml") +
                               Words{"--knobs", "leaves,transport", "--rounds", "2", "--json"} +
                               Words{"--np", "1", "--virtual-ranks", "4", "--steps", "30"}));
    const Json found = parse_json(result, "tune");
    EXPECT_EQ(found["virtual_ranks"].get<int>(), 4);
    EXPECT_EQ(found["parameters"].get<std::string>().size(), 32u);
    EXPECT_GE(found["tried"].size(), 2u) << found;
    for (const Json& way : found["tried"]) {
        EXPECT_FALSE(way["decides_bits"].get<bool>()) << way;
        EXPECT_EQ(way["parameters"], found["parameters"]) << way;
        EXPECT_GE(way["step_s"].size(), 2u) << way;
    }
    EXPECT_FALSE(found["changes_bits"].get<bool>());
    EXPECT_THAT(found["not_tried"].dump(), has("transport: it has one value here"));
    EXPECT_THAT(read_file(folder / "tuned.toml"), has("# Found by lockstep tune, "));
    EXPECT_THAT(run_lockstep(train_words(train_data(), folder / "run", "mlp", 48) +
                             typed("--config % --max-steps 2", {folder / "tuned.toml"})),
                ends(0));
}

TEST(Tune, SaysWhatIsWrong) {
    const TempDir folder;
    const fs::path out = folder / "tuned.toml";
    const auto said = [](const Words& words) { return run_lockstep(words).output; };
    EXPECT_THAT(said({"tune"}), has("error E105: "));
    EXPECT_THAT(said({"tune", folder / "none"}), has("error E201: "));
    EXPECT_THAT(said(tune(folder / "none" / "tuned.toml")), has("error E401: "));
    EXPECT_THAT(said(tune(out) + Words{"--data", "x"}), has("error E106: "));
    EXPECT_THAT(said(tune(out) + Words{"--hosts", "a:1,b:1"}), has("error E106: "));
    EXPECT_THAT(said(tune(out) + Words{"--knobs", "io"}), has("'io' is none of np, "));
    write_file_atomically(out, "");
    EXPECT_THAT(said(tune(out)), has("error E407: "));
    EXPECT_EQ(read_file(out), "");
    const fs::path other = folder / "other.toml";
    EXPECT_THAT(run_lockstep(tune(other) + Words{"--minutes", "0.01"}),
                ends(64, "error E742: --minutes 0.01 is too little"));
    EXPECT_FALSE(fs::exists(other));
}

}  // namespace
}  // namespace lockstep::test
