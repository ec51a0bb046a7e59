// SPDX-License-Identifier: Apache-2.0
// Training reads its data one way or another: the model is the same, and every sample counts once.
#include "program.hpp"
#include "run_files.hpp"
#include "small_data.hpp"
#include "support/temp_dir.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

constexpr std::int64_t steps_of_epoch = 75;  // 600 samples, 8 in a step

Words train(const fs::path& data, const fs::path& run, int ranks) {
    return {"train",
            "--data",
            data,
            "--run",
            run,
            "--model",
            "mlp",
            "--batch",
            "8",
            "--virtual-ranks",
            "4",
            "--epochs",
            "1",
            "--log-every",
            "1",
            "--np",
            std::to_string(ranks),
            "--oversubscribe"};
}

class TrainData : public testing::Test {
  protected:
    ProcessResult run(const std::string& name, int ranks, const Words& more = {}) const {
        return run_lockstep(train(data_, folder_ / name, ranks) + more);
    }
    /// The parameters that a run ends with; "" if it fails.
    std::string hash(const std::string& name, int ranks, const Words& more = {}) const {
        const ProcessResult result = run(name, ranks, more);
        EXPECT_EQ(result.exit_code, 0) << result.output;
        return printed_hash(result.output);
    }

    TempDir folder_;
    fs::path data_ = SmallData::get().train();
};

TEST_F(TrainData, IsTheSameStreamedAndResident) {
    const std::string streamed = hash("streamed", 2, {"--data-mode", "stream"});
    EXPECT_EQ(hash("resident", 3, {"--data-mode", "resident"}), streamed);
    EXPECT_EQ(
        hash("dropped", 1, {"--data-mode", "stream", "--page-cache", "drop", "--io-threads", "3"}),
        streamed);
}

TEST_F(TrainData, InUniformOrderIsTheSameOnAnyNumberOfRanks) {
    const std::string one = hash("one", 1, {"--order", "uniform"});
    EXPECT_EQ(hash("four", 4, {"--order", "uniform"}), one);
    EXPECT_NE(hash("lanes", 1), one);
}

TEST_F(TrainData, OrderOfARunCannotChange) {
    hash("run", 1, {"--max-steps", "3"});
    const ProcessResult again = run("run", 1, {"--max-steps", "6", "--order", "uniform"});
    EXPECT_NE(again.exit_code, 0);
    EXPECT_THAT(again.output, testing::HasSubstr("order"));
}

class DamagedTrainData : public TrainData {
  protected:
    DamagedTrainData() {
        data_ = folder_ / "damaged";
        copy_train_set(data_);
        const auto index = open_index(data_);
        overwrite(SmallData::shard(data_), index->stored_blocks(0)[3].offset + 100, "damage");
    }
};

TEST_F(DamagedTrainData, EndsTheRunUnlessItIsMasked) {
    for (const char* mode : {"stream", "resident"}) {
        const ProcessResult result = run(mode, 2, {"--data-mode", mode});
        EXPECT_NE(result.exit_code, 0);
        EXPECT_THAT(result.output, testing::HasSubstr("E213"));
    }
}

TEST_F(DamagedTrainData, MaskedTrainsInStepOnAnyNumberOfRanks) {
    const Words masked = {"--on-bad-data", "mask"};
    const std::string one = hash("one", 1, masked + Words{"--data-mode", "stream"});
    EXPECT_EQ(hash("four", 4, masked + Words{"--data-mode", "stream"}), one);
    EXPECT_EQ(hash("shared", 4, masked + Words{"--data-mode", "resident"}), one);
    EXPECT_EQ(training_steps(folder_ / "four"), all_steps(steps_of_epoch));
}

class KilledTrainData : public TrainData {
  protected:
    /// Runs on `ranks` ranks until `step`, and kills them all.
    void kill_at(std::int64_t step, int ranks, const Words& more) const {
        Background job(Words{program()} + train(data_, run_, ranks) + more, folder_ / "output");
        eventually([&] { return job.has_ended() || newest_step(run_) >= step; });
        job.send(SIGKILL);
        job.wait();
        EXPECT_TRUE(eventually([&] { return processes_with(run_).empty(); }, 30));
    }

    const fs::path run_ = folder_ / "run";
};

TEST_F(KilledTrainData, IsSeenExactlyOnceAcrossRestarts) {
    const Words options = {"--ledger", "--checkpoint-every", "5steps"};
    kill_at(17, 3, options);
    kill_at(33, 2, options);
    kill_at(49, 4, options);
    EXPECT_EQ(hash("run", 3, options), hash("undisturbed", 2));
    const ProcessResult ledger = run_lockstep({"data", "ledger", run_});
    EXPECT_EQ(ledger.exit_code, 0) << ledger.output;
    EXPECT_THAT(ledger.output, testing::HasSubstr("exactly once"));
}

TEST_F(TrainData, TransformedIsTheSameOnAnyNumberOfRanks) {
    const Words transform = {"--transform",
                             "crop 28 pad 3, flip, rotate 10, cutout 6, mixup 0.3, normalise"};
    const std::string one = hash("one", 1, transform);
    EXPECT_EQ(hash("four", 4, transform), one);
    EXPECT_EQ(hash("parts", 2, transform + Words{"--io-threads", "2", "--data-mode", "stream"}),
              one);
    EXPECT_NE(hash("plain", 1), one);
}

}  // namespace
}  // namespace lockstep::test
