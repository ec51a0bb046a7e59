// SPDX-License-Identifier: Apache-2.0
// Gradients in fewer bits: plain runs train with every wire format and say how much it saves.
#include "program.hpp"
#include "run_files.hpp"
#include "small_data.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

Json metrics_of_training(const std::string& wire) {
    const TempDir folder;
    const fs::path run = folder.path() / "run";
    const Words words = {"train", "--data", SmallData::get().train(), "--run", run};
    const auto result =
        run_lockstep(words + Words{"--np", "2", "--model", "mlp", "--max-steps", "20"} +
                     Words{"--batch", "48", "--plain", "--wire", wire, "--log-every", "20"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return json_lines(run / "metrics.jsonl").back();
}

TEST(WireFormats, ThatRoundHalveTheBytesAndTrainAlike) {
    const Json exact = metrics_of_training("f32");
    EXPECT_FALSE(exact.contains("wire_compression"));
    for (const char* wire : {"bf16", "fp16"}) {
        const Json rounded = metrics_of_training(wire);
        EXPECT_NEAR(rounded.at("wire_compression").get<double>(), 2, 0.1) << wire;
        EXPECT_NEAR(rounded.at("loss").get<double>(), exact.at("loss").get<double>(), 0.05) << wire;
    }
}

TEST(WireFormats, OfLowRankSaveMostBytesAndStillLearn) {
    const Json metrics = metrics_of_training("powersgd");
    EXPECT_GT(metrics.at("wire_compression").get<double>(), 5);
    EXPECT_LT(metrics.at("loss").get<double>(), 2.3);  // guessing among ten classes
}

}  // namespace
}  // namespace lockstep::test
