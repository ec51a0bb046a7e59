// SPDX-License-Identifier: Apache-2.0
#include "tune/trials.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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
        const bool decides = knob_of(name, four_cores(), {}).effect == KnobEffect::decides_bits;
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

}  // namespace
}  // namespace lockstep
