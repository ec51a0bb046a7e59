// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"
#include "tune/trials.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

KnobResult transports() {
    return {.knob = {.name = "transport",
                     .variants = {{{"transport", "auto"}},
                                  {{"transport", "mpi"}},
                                  {{"transport", "shared-memory"}}}},
            .step_s = {{0.002, 0.002}, {0.001, 0.001}, {}},
            .parameters = {"abc", "abc", ""},
            .why_not = {"", "", "error E653: no"},
            .quickest = 1};
}

Tuning tuned() {
    Tuning tuning{.steps = 120, .virtual_ranks = 8, .trainings = 30};
    tuning.knobs = {transports()};
    tuning.chosen = {{"np", "2"}, {"transport", "mpi"}};
    tuning.confirmed = {.median = 2, .least = 1.9, .most = 2.1, .noise = 0.1};
    tuning.turns = 5;
    tuning.parameters = "abc";
    return tuning;
}

TEST(KnobText, HasALineForEachValue) {
    const std::string text = knob_text(transports());
    EXPECT_THAT(text, HasSubstr("auto                       2.000 ms a step (2.000 to 2.000): as"));
    EXPECT_THAT(text, HasSubstr("1.000 ms a step (1.000 to 1.000): 2.00 times as fast"));
    EXPECT_THAT(text, HasSubstr("shared-memory              does not run: error E653: no"));
}

TEST(KnobText, SaysWhatGivesOtherBits) {
    KnobResult result = transports();
    result.knob.effect = KnobEffect::decides_bits;
    result.parameters[1] = "def";
    EXPECT_THAT(knob_text(result), HasSubstr("transport (decides bits: only chosen with"));
    EXPECT_THAT(knob_text(result), HasSubstr("as fast (2.00 to 2.00), other bits"));
}

TEST(ConfigOf, IsReadAsAConfig) {
    const test::TempDir folder;
    write_file_atomically(folder / "tuned.toml", config_of(tuned(), "2026-01-31"));
    const Config config = read_config(folder / "tuned.toml");
    EXPECT_EQ(config.size(), 3u);
    EXPECT_EQ(config_text(config.at("np").value), "2");
    EXPECT_EQ(config_text(config.at("virtual-ranks").value), "8");
    EXPECT_EQ(config_text(config.at("transport").value), "mpi");
}

TEST(ConfigOf, HoldsNothingThatWasNotConfirmed) {
    Tuning tuning = tuned();
    tuning.confirmed.least = 0.9;
    EXPECT_THAT(config_of(tuning, "2026-01-31"), Not(HasSubstr("\nnp = ")));
    EXPECT_THAT(verdict_text(tuning), HasSubstr("no gain beyond the noise: --np 2"));
    tuning.turns = 0;
    EXPECT_THAT(verdict_text(tuning), HasSubstr("no setting is faster beyond the noise"));
}

TEST(VerdictText, SaysTheGainAndThatNoBitChanged) {
    const std::string text = verdict_text(tuned());
    EXPECT_THAT(text,
                HasSubstr("gain: --np 2 --transport mpi is 2.00 times as fast (1.90 to 2.10)"));
    EXPECT_THAT(text, HasSubstr("gave the same parameters, after 120 steps abc\n"));
}

TEST(AddRound, RefusesOtherBitsThanThoseOfTheRoundsBefore) {
    KnobResult result = transports();
    add_round(result, 1, {.step_s = 0.003, .parameters = "abc"});
    EXPECT_EQ(result.step_s[1].back(), 0.003);
    add_round(result, 2, {.step_s = 0.003, .parameters = "abc"});
    EXPECT_EQ(result.parameters[2], "abc");
    EXPECT_THAT(
        test::caught_text([&] { add_round(result, 1, {.step_s = 0.003, .parameters = "def"}); }),
        HasSubstr("error E743: --transport mpi gave other parameters than before"));
}

TEST(CommonParameters, AreThoseOfAllThatChangeSpeedAlone) {
    EXPECT_EQ(common_parameters({transports()}, "abc"), "abc");
    KnobResult other = transports();
    other.parameters[1] = "def";
    EXPECT_THAT(test::caught_text([&] { common_parameters({other}, "abc"); }),
                HasSubstr("error E743: --transport mpi gave other parameters"));
    other.knob.effect = KnobEffect::decides_bits;
    EXPECT_EQ(common_parameters({other}, "abc"), "abc");
}

}  // namespace
}  // namespace lockstep
