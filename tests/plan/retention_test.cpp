// SPDX-License-Identifier: Apache-2.0
// What --keep says, and which checkpoints stay by it.
#include "lockstep/core/random.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/run/checkpoint.hpp"

#include "support/caught.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using Steps = std::vector<std::int64_t>;

Steps kept(const Retention& retention, const Steps& steps) {
    const auto because = kept_because(retention, steps);
    Steps found;
    for (std::size_t i = 0; i < steps.size(); ++i)
        if (because[i].any()) found.push_back(steps[i]);
    return found;
}

TrainSettings settings_of(const std::string& keep) {
    TrainSettings settings;
    set_setting(settings, "keep", keep);
    return settings;
}

TEST(KeepOption, TakesItsPartsInAnyOrder) {
    const KeepSettings keep = settings_of("best=2,every=10epochs,last=5").keep;
    EXPECT_EQ(keep.last, 5);
    EXPECT_EQ(keep.every, (Period{Period::Unit::epochs, 10}));
    EXPECT_EQ(keep.best, 2);
    EXPECT_EQ(settings_of("every=500steps").keep.last, 3);
    EXPECT_EQ(settings_of("last=1").keep.best, std::nullopt);
}

TEST(KeepOption, IsShownAsItIsRead) {
    for (const char* text : {"last=3", "last=1,every=1epoch", "last=9,every=500steps,best=0"}) {
        TrainSettings settings = settings_of(text);
        EXPECT_EQ(config_text(keep_option(settings.keep).current()), text);
    }
}

TEST(KeepOption, RefusesWhatItDoesNotKnow) {
    for (const char* text : {"",
                             "3",
                             "last",
                             "last=",
                             "last=0",
                             "last=1001",
                             "best=-1",
                             "every=10m",
                             "every=never",
                             "every=auto",
                             "every=2",
                             "first=1",
                             "last=1,last=2",
                             "last=1,",
                             "last=3 ,best=1"})
        EXPECT_EQ(test::caught_code([&] { settings_of(text); }), "E103") << text;
}

TEST(RetentionOfSettings, CountsInSteps) {
    const RunLength run{.steps_per_epoch = 25, .total_steps = 100};
    TrainSettings settings = settings_of("last=4,every=2epochs,best=2");
    const BestEvaluation best{.metric = "loss", .step = 30, .value = 1, .next = {{20, 2}}};
    const Retention epochs = retention_of(settings, run, best, 10);
    EXPECT_EQ(epochs.last, 4);
    EXPECT_EQ(epochs.every, 50);
    EXPECT_EQ(epochs.rollback, 0);
    EXPECT_EQ(epochs.read, 10);
    EXPECT_THAT(epochs.best, ElementsAre(30, 20));
    settings.on_nonfinite = NonFinite::rollback;
    EXPECT_EQ(retention_of(settings, run, best, 0).rollback, 25);
}

TEST(Retention, KeepsTheFirstOfEachPeriod) {
    const Steps steps{4, 8, 12, 16, 20, 24, 41, 42};
    EXPECT_THAT(kept({.last = 1, .every = 10}, steps), ElementsAre(12, 20, 41, 42));
    EXPECT_THAT(kept({.last = 1, .every = 100}, steps), ElementsAre(42));
    EXPECT_THAT(kept({.last = 1, .every = 1}, steps), steps);
}

TEST(Retention, SaysWhatKeepsEach) {
    const auto because = kept_because(
        {.last = 1, .every = 10, .rollback = 6, .read = 8, .best = {20}}, {8, 12, 18, 20});
    EXPECT_EQ(because[0].text(), "read");
    EXPECT_EQ(because[1].text(), "every");
    EXPECT_EQ(because[2].text(), "rollback");
    EXPECT_EQ(because[3].text(), "newest, best, every");
    EXPECT_EQ(KeptBecause{}.text(), "-");
    // A start that began with step 15 may have to begin with it again.
    EXPECT_THAT(kept({.last = 1, .rollback = 2, .read = 15}, {12, 14, 15, 16}),
                ElementsAre(14, 15, 16));
}

// A run as it goes: each save applies the rule to what the saves before it have left.
TEST(Retention, NeverLosesWhatItPromises) {
    CounterRandom random{Purpose::test, {44}};
    for (int trial = 0; trial < 500; ++trial) {
        Retention rule{.last = 1 + static_cast<int>(random.below(4)),
                       .every = static_cast<std::int64_t>(random.below(30)),
                       .rollback = static_cast<std::int64_t>(random.below(2) * 5)};
        Steps present, all;
        std::set<std::int64_t> periods;
        std::int64_t step = 0;
        for (int save = 0; save < 40; ++save) {
            step += 1 + static_cast<std::int64_t>(random.below(9));
            present.push_back(step);
            all.push_back(step);
            if (random.below(6) == 0) rule.best = {step};
            if (random.below(12) == 0) rule.read = present[random.below(present.size())];
            const bool is_first =
                rule.every > 0 && step >= rule.every && periods.insert(step / rule.every).second;
            const Steps before = std::exchange(present, kept(rule, present));
            SCOPED_TRACE(fmt::format("trial {}, step {}", trial, step));
            const auto is_there = [&](std::int64_t one) {
                return std::ranges::binary_search(present, one);
            };
            EXPECT_TRUE(is_there(step)) << "the newest";
            const std::size_t newest = std::min(static_cast<std::size_t>(rule.last), all.size());
            for (const std::int64_t one : std::span(all).last(newest)) EXPECT_TRUE(is_there(one));
            for (const std::int64_t one : rule.best) EXPECT_TRUE(is_there(one)) << "the best";
            const bool was_there = std::ranges::binary_search(before, rule.read);
            EXPECT_TRUE(!was_there || is_there(rule.read)) << "the one that was read";
            EXPECT_TRUE(!is_first || is_there(step)) << "the first of a period";
            EXPECT_EQ(kept(rule, present), present) << "what stays does not go by the same rule";
        }
        for (const std::int64_t period : periods)
            EXPECT_TRUE(std::ranges::any_of(
                present, [&](std::int64_t one) { return one / rule.every == period; }));
    }
}

}  // namespace
}  // namespace lockstep
