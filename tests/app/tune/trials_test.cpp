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

TEST(KnobText, HasALineForEachValueAndSaysWhatGivesOtherBits) {
    const std::string text = knob_text(transports());
    EXPECT_THAT(text, HasSubstr("auto                       2.000 ms a step (2.000 to 2.000): as"));
    EXPECT_THAT(text, HasSubstr("1.000 ms a step (1.000 to 1.000): 2.00 times as fast"));
    EXPECT_THAT(text, HasSubstr("shared-memory              does not run: error E653: no"));
    KnobResult result = transports();
    result.knob.decides_bits = true;
    result.parameters[1] = "def";
    EXPECT_THAT(knob_text(result), HasSubstr("transport (decides bits: only chosen with"));
    EXPECT_THAT(knob_text(result), HasSubstr("as fast (2.00 to 2.00), other bits"));
}

TEST(ConfigOf, IsReadAsAConfigAndHoldsNothingThatWasNotConfirmed) {
    const TempDir folder;
    write_file_atomically(folder / "tuned.toml", config_of(tuned(), "2026-01-31"));
    const Config config = read_config(folder / "tuned.toml");
    EXPECT_EQ(config.size(), 3u);
    EXPECT_EQ(config_text(config.at("np").value), "2");
    EXPECT_EQ(config_text(config.at("virtual-ranks").value), "8");
    EXPECT_EQ(config_text(config.at("transport").value), "mpi");
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

const KnobFacts four_cores{.cores = 4, .virtual_ranks = 8};

std::vector<std::string> texts(const std::string& name,
                               const KnobFacts& facts = four_cores,
                               const Variant& current = {}) {
    std::vector<std::string> all;
    const Knob knob = knob_of(name, facts, current);
    for (const Variant& variant : knob.variants) all.push_back(variant_text(knob, variant));
    return all;
}

TEST(Knobs, KnowWhichOfThemDecideBitsAndKeepWhatWasChosenBefore) {
    for (const std::string& name : knob_names()) {
        const bool decides = knob_of(name, four_cores, {}).decides_bits;
        EXPECT_EQ(decides, name == "threads") << name;
    }
    EXPECT_EQ(knob_names().back(), "threads") << "what decides bits is tried last";
    for (const Variant& variant : knob_of("io-threads", four_cores, {{"np", "2"}}).variants)
        EXPECT_EQ(variant.at("np"), "2");
}

TEST(Knobs, BeginWithWhatThereIsAndHaveNoMoreRanksThanVirtualRanksOrCores) {
    EXPECT_THAT(texts("np"), ElementsAre("1", "2", "4"));
    EXPECT_THAT(texts("io-threads"), ElementsAre("0", "1", "2", "4"));
    EXPECT_THAT(texts("leaves"), ElementsAre("auto", "one-by-one"));
    EXPECT_THAT(texts("np", {.cores = 4, .virtual_ranks = 2}), ElementsAre("1", "2"));
    EXPECT_THAT(texts("np", {.cores = 6, .threads = 2, .virtual_ranks = 8}),
                ElementsAre("1", "2", "3"));
    EXPECT_THAT(
        texts("threads", four_cores, {{"np", "4"}}),
        ElementsAre("1 in each of 4 rank(s)", "2 in each of 2 rank(s)", "4 in each of 1 rank(s)"));
}

TEST(Knobs, LeaveWhatIsGivenAndTryNothingBetweenRanksWhereThereIsOne) {
    KnobFacts facts = four_cores;
    facts.given = {"np", "transport"};
    EXPECT_THAT(texts("np", facts), IsEmpty());
    EXPECT_THAT(texts("transport", facts, {{"np", "2"}}), IsEmpty());
    EXPECT_THAT(
        texts("threads", facts),
        ElementsAre("1 in each of 1 rank(s)", "2 in each of 1 rank(s)", "4 in each of 1 rank(s)"));
    EXPECT_THAT(texts("transport"), IsEmpty());
    EXPECT_THAT(texts("transport", four_cores, {{"np", "2"}}),
                ElementsAre("auto", "shared-memory", "mpi"));
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

TEST(SpeedUp, IsNoGainWithinTheNoiseOrWhereOneRoundSaysOtherwise) {
    const SpeedUp within = speed_up(std::vector{1.10, 1.00, 1.20}, std::vector{1.02, 0.99, 1.15});
    EXPECT_GT(within.least, 1);
    EXPECT_FALSE(within.is_gain());
    EXPECT_FALSE(speed_up(std::vector{2.0, 2.0, 2.0}, std::vector{1.0, 1.0, 2.01}).is_gain());
}

TEST(QuickestWay, IsTheQuickestOfThoseBeyondTheNoise) {
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.5, 1.5}, {1, 1}, {3, 3}}), 2u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.9, 2.05}}), 0u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}}), 0u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {}, {1}}), 0u) << "one that did not run";
}

TEST(MedianOf, TakesTheMiddle) {
    EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
    EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace lockstep
