// SPDX-License-Identifier: Apache-2.0
// Training in 16 bits keeps the promise: equal parameters on any number of ranks, after overflows
// and after a resume.
#include "program.hpp"

namespace lockstep::test {
namespace {

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
