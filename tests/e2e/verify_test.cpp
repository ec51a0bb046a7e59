// SPDX-License-Identifier: Apache-2.0
// The promise itself: `lockstep verify` finds equal parameters on different numbers of ranks.
// Models, tasks, optimizers and schedules are in soak/equal_bits.
#include "program.hpp"

#include <set>
#include <sstream>

namespace lockstep::test {
namespace {

ProcessResult verify(const Words& options) {
    const Words words = {"verify", "--data", train_data(), "--steps", "6"};
    return run_lockstep(words + Words{"--batch", "48"} + options);
}

struct Row {
    int ranks = 0;
    std::string hash;
};

// The rows of the printed table.
std::vector<Row> rows_of(const std::string& output) {
    std::istringstream lines(output);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "ranks  parameters");
    std::vector<Row> rows;
    for (Row row; lines >> row.ranks >> row.hash;) rows.push_back(row);
    return rows;
}

std::size_t different_hashes(const std::vector<Row>& rows) {
    std::set<std::string> hashes;
    for (const Row& row : rows) hashes.insert(row.hash);
    return hashes.size();
}

// Of the fewest ranks.
std::string first_hash(const ProcessResult& result) {
    const auto rows = rows_of(result.output);
    EXPECT_FALSE(rows.empty()) << result.output;
    return rows.empty() ? "" : rows.front().hash;
}

void expect_equal_on(const std::vector<int>& ranks, const ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const auto rows = rows_of(result.output);
    std::vector<int> seen;
    for (const Row& row : rows) seen.push_back(row.ranks);
    EXPECT_EQ(seen, ranks);
    EXPECT_EQ(different_hashes(rows), 1u) << result.output;
    EXPECT_THAT(result.output,
                EndsWith("equal: the same bits for every number of ranks (V = 4)\n"));
}

TEST(Verify, EndsAsTheTrainingThatFailed) {
    const TempDir folder;
    EXPECT_THAT(verify({"--ranks", "1,2", "--model", folder.file("net.pt", "no model").string()}),
                ends(78,
                     "error E250",
                     "E705: training on 1 rank(s) ended with",
                     testing::Not(has("-----"))));
    EXPECT_THAT(verify({"--ranks", "1,2", "--inputs", "none"}), ends(65));
    EXPECT_THAT(verify({"--ranks", "1,2", "--model", "cnm"}),
                fails("lockstep: error E103: no model 'cnm'"));
}

// Of the mlp with 4 virtual ranks; computed once.
const ProcessResult& of_shared_memory() {
    static const auto result = verify(typed("--model mlp --ranks 1,2,4 --comm-thread off"));
    return result;
}

TEST(Verify, FindsMessagesAndAThreadForCommunicationEqualToSharedMemory) {
    expect_equal_on({1, 2, 4}, of_shared_memory());
    for (const char* other : {"--transport mpi --shard-state all",
                              "--transport mpi --shard-state node",
                              "--comm-thread on"}) {
        const auto result = verify(typed("--model mlp --ranks 2,4") + typed(other));
        expect_equal_on({2, 4}, result);
        EXPECT_EQ(first_hash(result), first_hash(of_shared_memory())) << other;
    }
}

TEST(Verify, FindsAccumulatedAndClippedGradientsEqual) {
    const Words words = typed("--model mlp --micro-batches 5 --virtual-ranks 4 --ranks");
    const auto clipped = verify(words + Words{"1,2,4", "--clip-norm", "0.1"});
    expect_equal_on({1, 2, 4}, clipped);
    EXPECT_NE(first_hash(clipped), first_hash(verify(words + Words{"1,2"})));
}

TEST(Verify, FindsFrozenAndSlowerParametersEqual) {
    const auto tuned = verify(typed("--virtual-ranks 4 --model mlp --ranks 1,2,3") +
                              typed("--freeze fc1.weight --lr-group fc2.*=0.1,*.bias=2"));
    expect_equal_on({1, 2, 3}, tuned);
    EXPECT_NE(first_hash(tuned), first_hash(of_shared_memory()));
}

/// Trainings of one rank or several, whose eight leaves of six samples have batch statistics.
class LeafModes : public RunsTest {
  protected:
    Words train(const std::string& run,
                const std::string& leaves,
                int steps = 6,
                const std::string& batch = "48") const {
        return Words{"train", "--data", train_data(), "--run", folder_ / run} +
               Words{"--model", "cnn-bn", "--batch", batch, "--virtual-ranks", "8"} +
               Words{"--max-steps", std::to_string(steps), "--leaves", leaves};
    }
    /// Rank 0 computes its leaves together, the others one by one.
    ProcessResult run_mixed(const std::string& run) const {
        const std::string script =
            "mode=one-by-one; [ \"$OMPI_COMM_WORLD_RANK\" = 0 ] && mode=together\n"
            "exec \"$@\" --leaves \"$mode\"";
        Words words = train(run, "auto");
        words.resize(words.size() - 2);
        return run_process(
            mpirun_words(3) + Words{"bash", "-c", script, "bash", program()} + words, {}, 120);
    }
};

TEST_F(LeafModes, DecideNoBit) {
    const auto together = run_lockstep(train("together", "together"));
    EXPECT_THAT(together, says("leaves: 8 a rank of 6 samples, computed together"));
    const std::string hash = printed_hash(together.output);
    const auto one_by_one = run_lockstep(train("one", "one-by-one"));
    EXPECT_THAT(one_by_one.output, Not(has("computed together")));
    EXPECT_EQ(printed_hash(one_by_one.output), hash) << one_by_one.output;
    const auto mixed = run_mixed("mixed");
    EXPECT_EQ(printed_hash(mixed.output), hash) << mixed.output;
    EXPECT_THAT(run_lockstep(train("resumed", "together", 3)), ends(0));
    const auto resumed = run_lockstep(train("resumed", "one-by-one"));
    EXPECT_EQ(printed_hash(resumed.output), hash) << resumed.output;
}

TEST_F(LeafModes, SayWhatStandsInTheWay) {
    EXPECT_THAT(run_lockstep(train("few", "together", 6, "24")),
                says("why: 3 samples each are too few\n"));
    EXPECT_THAT(run_lockstep(train("cut", "auto", 1) + Words{"--micro-batches", "2"}),
                says("computed one by one: they are cut into micro-batches\n"));
}

class VirtualRanks : public RunsTest {};

TEST_F(VirtualRanks, ByDefaultAreEnoughForTheSameBitsOnAnyNumberOfRanks) {
    const auto train = [&](int ranks) {
        return run_lockstep(Words{"train", "--data", train_data(), "--max-steps", "6"} +
                            Words{"--model", "cnn", "--batch", "64", "--oversubscribe", "--np"} +
                            Words{std::to_string(ranks), "--run", folder_ / std::to_string(ranks)});
    };
    const auto alone = train(1);
    EXPECT_THAT(alone, says("virtual ranks: 8 by default, for as many ranks with the same bits\n"));
    EXPECT_THAT(alone, says("8 a rank of 8 samples, computed together"));
    EXPECT_EQ(printed_hash(output_of(train(3))), printed_hash(alone.output));
}

TEST_F(VirtualRanks, DoNotMakeEvaluationsReadMoreAtOnce) {
    const auto synth = [&](const std::string& name, const std::string& samples) {
        run_lockstep(typed("data synth --size 64 --samples % --out %", {samples, folder_ / name}));
    };
    synth("train", "256");
    synth("test", "6000");
    EXPECT_THAT(
        run_lockstep(train_words(folder_ / "train", run_, "mlp", 256) +
                     typed("--test-data % --virtual-ranks 64 --max-steps 1", {folder_ / "test"})),
        ends(0, "of 6,000)"));
}

// With two micro-batches, too: only whole leaves' gradients count.
TEST_F(VirtualRanks, NoiseScaleIsTheSameOnAnyNumberOfRanksAndChangesNoBit) {
    run_lockstep({"data", "synth", "--samples", "400", "--size", "8", "--out", folder_ / "data"});
    const auto train = [&](const std::string& run, int ranks, const Words& more) {
        return run_lockstep(train_words(folder_ / "data", folder_ / run, "mlp", 40) +
                            typed("--virtual-ranks 4 --micro-batches 2") + on_ranks(ranks) + more);
    };
    const Words measured = {"--noise-scale-every", "2"};
    const std::string one = output_of(train("one", 1, measured));
    EXPECT_THAT(train("three", 3, measured), ends(0));
    EXPECT_THAT(
        one, ContainsRegex("gradient noise scale: [0-9.e+]+ samples, compared with 40 per step"));
    const auto found = [&](const std::string& run) {
        return json_lines(folder_ / run / "metrics.jsonl").back().at("noise_scale").get<double>();
    };
    EXPECT_GT(found("one"), 1);
    EXPECT_EQ(found("one"), found("three"));
    EXPECT_EQ(printed_hash(one), printed_hash(train("none", 1, {}).output));
}

}  // namespace
}  // namespace lockstep::test
