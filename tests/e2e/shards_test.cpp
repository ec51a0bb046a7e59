// SPDX-License-Identifier: Apache-2.0
// Optimizer state that all ranks of a job divide among them: less memory on each node, the same
// bits, and checkpoints for every other layout.
#include "program.hpp"

namespace lockstep::test {
namespace {

/// How ranks are started, and how they divide the state.
struct ShardLayout {
    Words start;
    std::string options;
};

ShardLayout on_one_host(int ranks, const std::string& more = "") {
    return {{program()}, fmt::format("--np {} --oversubscribe {}", ranks, more)};
}

/// Each rank is a node of its own.
ShardLayout by_messages() {
    return on_one_host(4, "--transport mpi --shard-state all");
}

ShardLayout on_hosts(const std::string& hosts, const std::string& shards) {
    return {{LOCKSTEP_TWO_HOSTS, hosts, "--", "mpirun", "--bind-to", "none", program()},
            "--shard-state " + shards};
}

/// Norms by tensor, a norm of all, and an average of the weights: all that adds over owners.
class SharedState : public RunsTest {
  protected:
    void SetUp() override {
        if (const auto why = hosts_obstacle(LOCKSTEP_TWO_HOSTS); !why.empty()) GTEST_SKIP() << why;
    }

    ProcessResult train(const std::string& run, int steps, const ShardLayout& layout) const {
        const Words words = typed(
            "train --data % --run % --model mlp --batch 48 --virtual-ranks 4 --optimizer "
            "lamb --clip-norm 0.5 --ema 0.9 --checkpoint-every 2steps --max-steps %",
            {train_data().string(), (folder_.path() / run).string(), std::to_string(steps)});
        const ProcessResult trained = run_process(layout.start + words + typed(layout.options),
                                                  {{"OMPI_MCA_mpi_yield_when_idle", "1"}},
                                                  ample_s);
        EXPECT_EQ(trained.exit_code, 0) << trained.output;
        return trained;
    }

    /// The summary that a start left in rank 0's log.
    Json summary(const std::string& run) const {
        for (const Json& event : json_lines(folder_.path() / run / "logs/i1/rank-00000.jsonl"))
            if (event.value("event", "") == "job") return event;
        ADD_FAILURE() << "no summary of " << run;
        return {};
    }
};

// Each host has a /dev/shm of its own.
TEST_F(SharedState, IsNotTrainedWhereNodesHaveFoldersOfTheirOwn) {
    EXPECT_THAT(run_process(on_hosts("a:1,b:1", "all").start +
                                typed("train --data % --run /dev/shm/run --max-steps 2",
                                      {train_data().string()}),
                            {},
                            ample_s),
                ends(78,
                     ContainsRegex("E605: this node has another folder '/dev/shm/run' than "
                                   "rank 0's, or none \\(rank 1 on b only\\)"),
                     "give --run on a file system that all nodes share"));
}

TEST_F(SharedState, OfANodeIsHalfOfItOnTwoNodesWithTheSameBits) {
    const ProcessResult node = train("node", 6, on_hosts("a:2,b:2", "node"));
    const ProcessResult all = train("all", 6, on_hosts("a:2,b:2", "all"));
    const std::string alone = printed_hash(train("alone", 6, on_one_host(1)).output);
    EXPECT_EQ(printed_hash(node.output), alone);
    EXPECT_EQ(printed_hash(all.output), alone);
    EXPECT_EQ(printed_hash(train("messages", 6, by_messages()).output), alone);
    EXPECT_THAT(
        node,
        says("for optimizer state, which 2 nodes each have", "buckets, summed by hierarchical"));
    EXPECT_THAT(all, says("for parameters that 2 ranks share"));

    const Json of_node = summary("node"), of_all = summary("all");
    const auto state = [](const Json& job) { return job.at("node_state_bytes").get<double>(); };
    EXPECT_GT(state(of_node), 3 * 4 * 50'000.0) << "m, v and the average";
    EXPECT_NEAR(state(of_all) / state(of_node), 0.5, 0.01);
    EXPECT_NEAR(of_all.at("model").at("state").get<double>() /
                    of_node.at("model").at("state").get<double>(),
                0.5,
                0.01);
}

TEST_F(SharedState, IsResumedOnEveryOtherLayout) {
    const std::string hash = printed_hash(train("alone", 12, on_one_host(1)).output);
    int steps = 0;
    for (const ShardLayout& layout : {on_hosts("a:2,b:2", "all"),
                                      on_one_host(2, "--shard-state all"),
                                      by_messages(),
                                      on_hosts("a:1,b:1,c:1", "all"),
                                      on_hosts("a:2,b:1", "node"),
                                      on_hosts("a:2,b:2", "auto")})
        train("moved", steps += 2, layout);
    const ProcessResult last = train("moved", 12, on_one_host(1));
    EXPECT_EQ(printed_hash(last.output), hash) << last.output;
}

TEST(ShardState, OfOneNodeSaysThatItHasNoEffect) {
    const TempDir folder;
    EXPECT_THAT(
        run_lockstep(typed(
            "train --data % --run % --model mlp --batch 48 --virtual-ranks 4 --max-steps 2 --np 2 "
            "--oversubscribe --shard-state all",
            {train_data().string(), (folder.path() / "run").string()})),
        ends(0, "--shard-state all has no effect: one node"));
}

}  // namespace
}  // namespace lockstep::test
