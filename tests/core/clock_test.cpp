// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"

#include "lockstep/core/split.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// Lets at least `seconds` pass.
void spend(double seconds) {
    for (const double end = now_s() + seconds; now_s() < end;) {
    }
}

TEST(UtcText, IsIso8601WithMilliseconds) {
    EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00.000Z");
    EXPECT_EQ(utc_text(1769862896.75), "2026-01-31T12:34:56.750Z");
    EXPECT_EQ(utc_text(1709164800), "2024-02-29T00:00:00.000Z");
}

TEST(DurationText, HasAtMostTwoUnits) {
    EXPECT_EQ(duration_text(0.045), "45ms");
    EXPECT_EQ(duration_text(12.34), "12.3s");
    EXPECT_EQ(duration_text(59.97), "1m00s");
    EXPECT_EQ(duration_text(252), "4m12s");
    EXPECT_EQ(duration_text(3599.7), "1h00m");
    EXPECT_EQ(duration_text(3780), "1h03m");
    EXPECT_EQ(duration_text(90000), "1d01h");
    EXPECT_EQ(duration_text(0.9997), "1.0s");
}

TEST(PhaseName, NamesEachPhaseOnce) {
    EXPECT_EQ(phase_name(Phase::data), "data");
    EXPECT_EQ(phase_name(Phase::evaluate), "evaluate");
    EXPECT_EQ(phase_name(Phase::other), "other");
}

TEST(PhaseClock, PhasesAddUpToTheWallTime) {
    const double start = now_s();
    PhaseClock clock;
    for (const auto phase : {Phase::data, Phase::forward, Phase::backward, Phase::data}) {
        clock.enter(phase);
        spend(0.003);
    }
    const auto phases = clock.take();
    const double wall = now_s() - start;
    EXPECT_NEAR(phases.sum(), wall, 0.01 * wall);
    EXPECT_GE(phases[Phase::data], 0.006);
    EXPECT_GE(phases[Phase::backward], 0.003);
}

TEST(PhaseClock, StartsAnewAndTellsThePhaseItEnds) {
    PhaseClock clock;
    clock.enter(Phase::forward);
    clock.take();
    spend(0.002);
    const auto phases = clock.take();
    EXPECT_GE(phases[Phase::forward], 0.002);
    EXPECT_EQ(phases[Phase::other], 0);
    EXPECT_EQ(clock.enter(Phase::data), Phase::forward);
    EXPECT_EQ(clock.enter(Phase::comm), Phase::data);
    EXPECT_EQ(PhaseClock().enter(Phase::data), Phase::other);
}

TEST(PhaseScope, ReturnsToThePhaseBefore) {
    PhaseClock clock;
    clock.enter(Phase::backward);
    {
        const PhaseScope outer(clock, Phase::comm);
        { const PhaseScope inner(clock, Phase::wait); }
        EXPECT_EQ(clock.enter(Phase::comm), Phase::comm);
    }
    EXPECT_EQ(clock.enter(Phase::other), Phase::backward);
}

TEST(PhaseClock, MovesNoMoreThanThereIs) {
    PhaseClock clock;
    clock.enter(Phase::backward);
    spend(0.004);
    clock.enter(Phase::other);
    clock.reassign(Phase::backward, Phase::comm, 0.001);
    clock.reassign(Phase::backward, Phase::wait, 1000);
    const auto phases = clock.take();
    EXPECT_DOUBLE_EQ(phases[Phase::comm], 0.001);
    EXPECT_EQ(phases[Phase::backward], 0);
    EXPECT_LT(phases[Phase::wait], 1);
    EXPECT_GE(phases[Phase::wait], 0.0029);
}

TEST(PhaseMark, FitsIntoOneWordAndIsOtherWhereNobodyPackedIt) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::count); ++i) {
        const PhaseMark mark{static_cast<Phase>(i), 86400.0 * 365 * 10 + 0.25};
        const PhaseMark back = unpacked_phase(packed(mark));
        EXPECT_EQ(back.phase, mark.phase);
        EXPECT_NEAR(back.since_s, mark.since_s, 2e-6);
    }
    EXPECT_EQ(unpacked_phase(0).phase, Phase::other);
    EXPECT_EQ(unpacked_phase(~std::uint64_t{0}).phase, Phase::other);
}

TEST(PhaseClock, TakesWhatADeviceHasMeasured) {
    PhaseClock clock;
    clock.enter(Phase::evaluate);
    spend(0.002);
    const PhaseSeconds before = clock.seconds();
    clock.enter(Phase::forward);
    spend(0.008);
    PhaseSeconds measured{};
    measured[Phase::backward] = 0.006;
    const double corrected_s = now_s();
    clock.correct(before, measured, Phase::data);
    PhaseSeconds phases = clock.seconds();
    const double since_s = now_s() - corrected_s;
    EXPECT_DOUBLE_EQ(phases[Phase::backward], 0.006);
    EXPECT_GE(phases[Phase::data], 0.002);
    EXPECT_EQ(phases[Phase::evaluate], before[Phase::evaluate]);
    EXPECT_LE(phases[Phase::forward], since_s) << "only what came since";

    measured[Phase::backward] = 1000;
    clock.correct(before, measured, Phase::data);
    phases = clock.take();
    EXPECT_LT(phases[Phase::backward], 1);
    EXPECT_NEAR(phases[Phase::data], 0, 1e-9);
}

TEST(PhaseClock, TellsOfEachPhase) {
    PhaseClock clock;
    std::vector<Phase> told;
    int others = 0;
    double last_s = now_s();
    const PhaseListener other(clock, [&](const PhaseMark&) { ++others; });
    {
        const PhaseListener listener(clock, [&](const PhaseMark& begun) {
            told.push_back(begun.phase);
            EXPECT_GE(begun.since_s, last_s);
            last_s = begun.since_s;
        });
        const PhaseScope scope(clock, Phase::forward);
        clock.enter(Phase::comm);
    }
    EXPECT_EQ(told, (std::vector{Phase::forward, Phase::comm, Phase::other}));
    clock.enter(Phase::wait);
    EXPECT_EQ(told.size(), 3U) << "a listener hears nothing once it is gone";
    EXPECT_EQ(others, 4);
}

TEST(PhaseClock, IsMirroredInAWord) {
    std::atomic<std::uint64_t> word{0};
    PhaseClock clock;
    clock.enter(Phase::data);
    clock.mirror_to(&word);
    EXPECT_EQ(unpacked_phase(word).phase, Phase::data);
    const double before = now_s();
    clock.enter(Phase::forward);
    EXPECT_EQ(unpacked_phase(word).phase, Phase::forward);
    EXPECT_GE(unpacked_phase(word).since_s, before - 1e-5);
    clock.mirror_to(nullptr);
    clock.enter(Phase::update);
    EXPECT_EQ(unpacked_phase(word).phase, Phase::forward);
}

TEST(ParseUtc, ReadsWhatUtcTextGivesAndLessAndRefusesOtherTexts) {
    for (const double time_s : {0.0, 1769862896.789, 4102444799.999})
        EXPECT_NEAR(parse_utc(utc_text(time_s)).value_or(-1), time_s, 0.001);
    EXPECT_EQ(parse_utc("2026-01-31"), 1769817600);
    EXPECT_EQ(parse_utc("2026-01-31T12:34"), 1769862840);
    EXPECT_EQ(parse_utc("2026-01-31 12:34:56"), 1769862896);
    for (const std::string& text :
         split("|Z|2026|2026-01|2026-13-01|2026-02-30|2026-01-31T12|2026-01-31T25:00|"
               "2026-01-31T12:34:56.7|26-01-31|10m|2026-01-31T12:34:56.789Zx|2026-01-31T-1:00",
               '|'))
        EXPECT_FALSE(parse_utc(text)) << text;
}

}  // namespace
}  // namespace lockstep
