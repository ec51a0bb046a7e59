// SPDX-License-Identifier: Apache-2.0
#include "tune/trials.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

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
    result.knob.decides_bits = true;
    result.parameters[1] = "def";
    EXPECT_THAT(knob_text(result), HasSubstr("transport (decides bits: only chosen with"));
    EXPECT_THAT(knob_text(result), HasSubstr("as fast (2.00 to 2.00), other bits"));
}

TEST(ConfigOf, IsReadAsAConfig) {
    const TempDir folder;
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
    EXPECT_THAT(caught_text([&] { add_round(result, 1, {.step_s = 0.003, .parameters = "def"}); }),
                HasSubstr("error E743: --transport mpi gave other parameters than before"));
}

TEST(CommonParameters, AreThoseOfAllThatChangeSpeedAlone) {
    EXPECT_EQ(common_parameters({transports()}, "abc"), "abc");
    KnobResult other = transports();
    other.parameters[1] = "def";
    EXPECT_THAT(caught_text([&] { common_parameters({other}, "abc"); }),
                HasSubstr("error E743: --transport mpi gave other parameters"));
    other.knob.decides_bits = true;
    EXPECT_EQ(common_parameters({other}, "abc"), "abc");
}

std::vector<std::string> texts(const Knob& knob) {
    std::vector<std::string> all;
    for (const Variant& variant : knob.variants) all.push_back(variant_text(knob, variant));
    return all;
}

KnobFacts four_cores() {
    return {.cores = 4, .virtual_ranks = 8};
}

TEST(Knobs, KnowWhichOfThemDecideBits) {
    for (const std::string& name : knob_names()) {
        const bool decides = knob_of(name, four_cores(), {}).decides_bits;
        EXPECT_EQ(decides, name == "threads") << name;
    }
    EXPECT_EQ(knob_names().back(), "threads") << "what decides bits is tried last";
}

TEST(Knobs, BeginWithWhatThereIs) {
    EXPECT_THAT(texts(knob_of("np", four_cores(), {})), ElementsAre("1", "2", "4"));
    EXPECT_THAT(texts(knob_of("io-threads", four_cores(), {})), ElementsAre("0", "1", "2", "4"));
    EXPECT_THAT(texts(knob_of("leaves", four_cores(), {})), ElementsAre("auto", "one-by-one"));
}

TEST(Knobs, HaveNoMoreRanksThanVirtualRanksOrCores) {
    KnobFacts facts = four_cores();
    facts.virtual_ranks = 2;
    EXPECT_THAT(texts(knob_of("np", facts, {})), ElementsAre("1", "2"));
    facts = four_cores();
    facts.cores = 6;
    facts.threads = 2;
    EXPECT_THAT(texts(knob_of("np", facts, {})), ElementsAre("1", "2", "3"));
}

TEST(Knobs, ShareCoresAmongRanksAndThreads) {
    EXPECT_THAT(
        texts(knob_of("threads", four_cores(), {{"np", "4"}})),
        ElementsAre("1 in each of 4 rank(s)", "2 in each of 2 rank(s)", "4 in each of 1 rank(s)"));
}

TEST(Knobs, LeaveWhatIsGiven) {
    KnobFacts facts = four_cores();
    facts.given = {"np", "transport"};
    EXPECT_THAT(knob_of("np", facts, {}).variants, IsEmpty());
    EXPECT_THAT(knob_of("transport", facts, {{"np", "2"}}).variants, IsEmpty());
    EXPECT_THAT(
        texts(knob_of("threads", facts, {})),
        ElementsAre("1 in each of 1 rank(s)", "2 in each of 1 rank(s)", "4 in each of 1 rank(s)"));
}

TEST(Knobs, TryNothingBetweenRanksWhereThereIsOne) {
    EXPECT_THAT(knob_of("transport", four_cores(), {}).variants, IsEmpty());
    EXPECT_THAT(texts(knob_of("transport", four_cores(), {{"np", "2"}})),
                ElementsAre("auto", "shared-memory", "mpi"));
}

TEST(Knobs, KeepWhatWasChosenBefore) {
    for (const Variant& variant : knob_of("io-threads", four_cores(), {{"np", "2"}}).variants)
        EXPECT_EQ(variant.at("np"), "2");
}

TEST(SettingsText, IsWhatTrainTakes) {
    EXPECT_EQ(settings_text({{"transport", "mpi"}, {"np", "2"}}), "--np 2 --transport mpi");
}

using Ways = std::vector<std::vector<double>>;

TEST(SpeedUp, IsTheMedianOfTheRounds) {
    const std::vector before{2.0, 2.1, 1.9}, after{1.0, 1.0, 1.0};
    const SpeedUp found = speed_up(before, after);
    EXPECT_DOUBLE_EQ(found.median, 2);
    EXPECT_DOUBLE_EQ(found.least, 1.9);
    EXPECT_DOUBLE_EQ(found.most, 2.1);
    EXPECT_TRUE(found.is_gain());
    EXPECT_EQ(speed_up_text(found), "2.00 times as fast (1.90 to 2.10)");
}

TEST(SpeedUp, IsNoGainWithinTheNoise) {
    const std::vector before{1.10, 1.00, 1.20}, after{1.02, 0.99, 1.15};
    EXPECT_GT(speed_up(before, after).least, 1);
    EXPECT_FALSE(speed_up(before, after).is_gain());
}

TEST(SpeedUp, IsNoGainWhereOneRoundSaysOtherwise) {
    const std::vector before{2.0, 2.0, 2.0}, after{1.0, 1.0, 2.01};
    EXPECT_FALSE(speed_up(before, after).is_gain());
}

TEST(QuickestWay, IsTheQuickestOfThoseBeyondTheNoise) {
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.5, 1.5}, {1, 1}, {3, 3}}), 2u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.9, 2.05}}), 0u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}}), 0u);
}

TEST(QuickestWay, IsNoneThatDidNotRun) {
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {}, {1}}), 0u);
}

TEST(MedianOf, TakesTheMiddle) {
    EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
    EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace lockstep
