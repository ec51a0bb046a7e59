// SPDX-License-Identifier: Apache-2.0
// What losses decide, what --keep says, and which checkpoints stay by it.
#include "lockstep/plan/losses.hpp"

#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/checkpoint.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Steps = std::vector<std::int64_t>;

TrainSettings judged_by(const std::string& metric, std::int64_t early_stop = 0) {
    TrainSettings settings;
    settings.keep_best = metric;
    settings.early_stop = early_stop;
    return settings;
}

// After evaluations of these values, at steps 10, 20, ...
BestEvaluation best_of(const TrainSettings& settings,
                       const std::string& metric,
                       const std::vector<double>& values) {
    BestEvaluation best;
    std::int64_t step = 0;
    for (const double value : values)
        note_evaluation(best, settings, {{metric, value}}, step += 10);
    return best;
}

TEST(BestEvaluation, IsTheLeastErrorOrTheLargestScoreThatWasAskedFor) {
    for (const std::string metric : {"loss", "mae", "rmse", "perplexity"}) {
        const BestEvaluation best = best_of(judged_by(metric), metric, {3, 1, 2, 1});
        EXPECT_EQ(best.step, 20) << metric;
        EXPECT_EQ(best.value, 1);
        EXPECT_EQ(best.not_since, 2);
    }
    for (const std::string metric : {"accuracy", "top5", "f1", "r2", "iou"})
        EXPECT_EQ(best_of(judged_by(metric), metric, {1, 3, 2, 3}).step, 20) << metric;
    EXPECT_EQ(best_of(judged_by(""), "loss", {1}).metric, "");
    EXPECT_EQ(best_of(judged_by("kl:min"), "kl", {3, 1, 2}).step, 20);
    EXPECT_EQ(best_of(judged_by("kl:max"), "kl", {1, 3, 2}).step, 20);
    EXPECT_THAT(kept_steps(judged_by("kl:max"), best_of(judged_by("kl:min"), "kl", {3, 1})),
                IsEmpty());
    EXPECT_EQ(passed_over(judged_by("kl:min"), {{"kl", std::numeric_limits<double>::infinity()}}),
              "the test kl is inf: --keep-best kl:min passes this evaluation over");
}

TEST(BestEvaluation, IsNeverOneThatIsNotFiniteAndIsMissedWhereNoneIs) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double most = std::numeric_limits<double>::infinity();
    const BestEvaluation best = best_of(judged_by("r2"), "r2", {nan, 0.5, most, nan});
    EXPECT_EQ(best.step, 20);
    EXPECT_EQ(best.not_since, 2);
    const TrainSettings settings = judged_by("", 2);
    EXPECT_EQ(reason_to_stop(settings, best_of(settings, "loss", {nan, nan})),
              "2 evaluations, and none with a finite loss");
    EXPECT_EQ(passed_over(settings, {{"loss", nan}}),
              "the test loss is nan: --early-stop passes this evaluation over");
    EXPECT_EQ(passed_over(judged_by("r2"), {{"loss", 1}, {"r2", -nan}}).substr(0, 11),
              "the test r2");
    EXPECT_EQ(passed_over(judged_by("r2"), {{"loss", nan}, {"r2", 1}}), "");
    EXPECT_EQ(passed_over(judged_by(""), {{"loss", nan}}), "") << "nothing is asked for";
}

TEST(BestEvaluation, BeginsAnewWithAnotherMetric) {
    BestEvaluation best = best_of(judged_by("loss"), "loss", {1, 2, 3});
    const TrainSettings other = judged_by("accuracy", 2);
    EXPECT_EQ(reason_to_stop(other, best), "");
    EXPECT_THAT(kept_steps(other, best), IsEmpty());
    note_evaluation(best, other, {{"loss", 0.1}, {"accuracy", 0.2}}, 40);
    EXPECT_THAT(kept_steps(other, best), ElementsAre(40));
    EXPECT_EQ(best.not_since, 0);
}

// The order of equals is that of their steps, so that a later one replaces none.
TEST(BestEvaluation, IsFollowedByTheNextBest) {
    TrainSettings settings = judged_by("loss");
    settings.keep.best = 3;
    BestEvaluation best = best_of(settings, "loss", {5, 3, 4, 3, 9});
    EXPECT_THAT(kept_steps(settings, best), ElementsAre(20, 40, 30));
    EXPECT_EQ(best.not_since, 3);
    note_evaluation(best, settings, {{"loss", 3.5}}, 60);
    EXPECT_THAT(kept_steps(settings, best), ElementsAre(20, 40, 60));
    note_evaluation(best, settings, {{"loss", 1}}, 70);
    EXPECT_THAT(kept_steps(settings, best), ElementsAre(70, 20, 40));
    EXPECT_EQ(best.not_since, 0);
    settings.keep.best = 2;
    EXPECT_THAT(kept_steps(settings, best), ElementsAre(70, 20));
    settings.keep.best = 0;
    EXPECT_THAT(kept_steps(settings, best), IsEmpty());
}

TEST(BestEvaluation, IsJudgedByTheLossIfOnlyANumberIsGiven) {
    TrainSettings settings;
    settings.keep.best = 2;
    const BestEvaluation best = best_of(settings, "loss", {5, 3, 4});
    EXPECT_EQ(best.metric, "loss");
    EXPECT_THAT(kept_steps(settings, best), ElementsAre(20, 30));
    EXPECT_EQ(passed_over(settings, {{"loss", std::nan("")}}),
              "the test loss is nan: --keep passes this evaluation over");
}

TEST(BestEvaluation, EndsARunAfterEnoughThatAreNoBetter) {
    const TrainSettings settings = judged_by("", 2);
    EXPECT_EQ(reason_to_stop(settings, best_of(settings, "loss", {})), "");
    EXPECT_EQ(reason_to_stop(settings, best_of(settings, "loss", {3, 2, 2.5})), "");
    const BestEvaluation best = best_of(settings, "loss", {3, 2, 2.5, 2});
    EXPECT_EQ(reason_to_stop(settings, best),
              "2 evaluations without a better loss than 2 of step 20");
    EXPECT_THAT(kept_steps(settings, best), IsEmpty());
    EXPECT_EQ(reason_to_stop(judged_by("", 3), best), "");
}

TEST(CheckMetric, ListsThoseOfTheTaskAndWantsADirectionWhereTheModelNamesOne) {
    const std::map<std::string, double> metrics = {{"loss", 0}, {"accuracy", 0}};
    const auto refused = [&](const std::string& metric, TaskKind task) {
        TrainSettings settings = judged_by(metric);
        settings.task.kind = task;
        return caught_text([&] { check_metric(settings, metrics); });
    };
    EXPECT_EQ(refused("accuracy", TaskKind::classification), "");
    EXPECT_EQ(refused("loss", TaskKind::program), "");
    EXPECT_EQ(refused("accuracy:max", TaskKind::program), "");
    EXPECT_EQ(refused("accuracy", TaskKind::program),
              "lockstep: error E103: --keep-best is 'accuracy'\n"
              "  why: the model names this metric, and its best value may be the lowest or the "
              "highest\n  fix: give --keep-best accuracy:min, or --keep-best accuracy:max");
    EXPECT_NE(refused("kl:min", TaskKind::program), "");
    const std::map<std::string, double> of_table = {{"loss", 0}, {"r2", 0}};
    EXPECT_EQ(caught_code([&] { check_metric(judged_by(""), of_table); }), "");
    EXPECT_EQ(caught_code([&] { check_metric(judged_by("r2"), of_table); }), "");
    EXPECT_EQ(caught_text([&] { check_metric(judged_by("accuracy"), of_table); }),
              "lockstep: error E103: --keep-best is 'accuracy'\n"
              "  why: the task's metrics are loss, r2\n  fix: give one of these");
}

TEST(LossError, DoesNotBlameTheLearningRateForTheFirstStep) {
    const Error error = loss_error(std::nan(""), 1, {});
    EXPECT_EQ(error.code(), "E701");
    EXPECT_THAT(error.what(), HasSubstr("is nan at step 1"));
    EXPECT_THAT(error.why(), has("no weight has changed yet", Not(HasSubstr("thread"))));
    EXPECT_THAT(error.fix(), AllOf(Not(HasSubstr("--lr")), HasSubstr("scale inputs and targets")));
}

TEST(LossError, NamesThreadsAndLaterDivergenceAndKnowsThatFp16EndsEarly) {
    TrainSettings settings;
    settings.threads = 2;
    const Error first = loss_error(std::nan(""), 1, settings);
    EXPECT_THAT(first.why(), HasSubstr("went wrong on 2 threads"));
    EXPECT_THAT(first.fix(), HasSubstr("--threads 1"));
    const Error later = loss_error(HUGE_VAL, 7, settings);
    EXPECT_THAT(later.why(), has("diverged", "2 threads"));
    EXPECT_THAT(later.fix(), has("--lr", "--threads 1"));
    const Error error = loss_error(HUGE_VAL, 2, {});
    EXPECT_THAT(error.why(), AllOf(HasSubstr("diverged"), Not(HasSubstr("thread"))));
    EXPECT_THAT(error.fix(), HasSubstr("the last checkpoint is good"));
    settings = {};
    settings.precision = Precision::fp16;
    const Error of_fp16 = loss_error(HUGE_VAL, 7, settings);
    EXPECT_THAT(of_fp16.why(), HasSubstr("65,504"));
    EXPECT_THAT(of_fp16.fix(), HasSubstr("--precision bf16"));
}

TEST(ScaleError, SaysHowLowItIsOrHowManyStepsWereSkipped) {
    const Error error = scale_error(0x1p-15, 31);
    EXPECT_EQ(error.code(), "E701");
    EXPECT_THAT(error.what(), HasSubstr("has fallen to 3.05e-05 at step 31"));
    EXPECT_THAT(error.fix(), HasSubstr("--precision bf16"));
    EXPECT_THAT(skipped_error(100, 340).what(),
                HasSubstr("100 steps in a row were skipped, the last is step 340"));
}

constexpr std::size_t parameters = 50;

// A mean over samples, each of gradient 1 in every parameter and noise of the deviation given.
std::vector<double> gradient(std::mt19937& random, double samples, double deviation) {
    std::normal_distribution<double> noise(0, deviation / std::sqrt(samples));
    std::vector<double> values(parameters);
    for (double& value : values) value = 1 + noise(random);
    return values;
}

double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
}

GradientNorms step_of(std::mt19937& random, int leaves, double leaf_samples, double deviation) {
    std::vector<double> mean(parameters);
    GradientNorms norms{.leaf_samples = leaf_samples, .step_samples = leaf_samples * leaves};
    for (int leaf = 0; leaf < leaves; ++leaf) {
        const std::vector<double> values = gradient(random, leaf_samples, deviation);
        norms.leaf_squares += squares(values) / leaves;
        for (std::size_t i = 0; i < parameters; ++i) mean[i] += values[i] / leaves;
    }
    norms.step_squares = squares(mean);
    return norms;
}

// tr(S) / |G|^2 is the deviation squared, whatever the leaves.
TEST(NoiseScale, IsThatOfTheSamplesAndNotKnownWhereNoiseHidesTheGradient) {
    std::mt19937 random(1);
    for (const int leaves : {2, 8})
        for (const double deviation : {1.0, 4.0}) {
            NoiseScale scale;
            double sum = 0;
            for (int step = 0; step < 200; ++step) {
                scale.add(step_of(random, leaves, 16, deviation));
                if (step >= 100) sum += scale.samples().value_or(0) / 100;
            }
            EXPECT_NEAR(sum / (deviation * deviation), 1, 0.25) << leaves << " " << deviation;
        }
    NoiseScale scale;
    EXPECT_EQ(scale.samples(), std::nullopt);
    scale.add({.leaf_squares = 4, .step_squares = 1, .leaf_samples = 1, .step_samples = 4});
    EXPECT_EQ(scale.samples(), std::nullopt);
}

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

TEST(KeepOption, TakesItsPartsInAnyOrderAndShowsThemAsTheyAreRead) {
    const KeepSettings keep = settings_of("best=2,every=10epochs,last=5").keep;
    EXPECT_EQ(keep.last, 5);
    EXPECT_EQ(keep.every, (Period{Period::Unit::epochs, 10}));
    EXPECT_EQ(keep.best, 2);
    EXPECT_EQ(settings_of("every=500steps").keep.last, 3);
    EXPECT_EQ(settings_of("last=1").keep.best, std::nullopt);
    for (const char* text : {"last=3", "last=1,every=1epoch", "last=9,every=500steps,best=0"}) {
        TrainSettings settings = settings_of(text);
        EXPECT_EQ(config_text(keep_option(settings.keep).current()), text);
    }
}

TEST(KeepOption, RefusesWhatItDoesNotKnow) {
    for (const std::string& text :
         split("|3|last|last=|last=0|last=1001|best=-1|every=10m|every=never|every=auto|every=2|"
               "first=1|last=1,last=2|last=1,|last=3 ,best=1",
               '|'))
        EXPECT_EQ(caught_code([&] { settings_of(text); }), "E103") << text;
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

TEST(Retention, KeepsTheFirstOfEachPeriodAndSaysWhatKeepsEach) {
    const Steps steps{4, 8, 12, 16, 20, 24, 41, 42};
    EXPECT_THAT(kept({.last = 1, .every = 10}, steps), ElementsAre(12, 20, 41, 42));
    EXPECT_THAT(kept({.last = 1, .every = 100}, steps), ElementsAre(42));
    EXPECT_THAT(kept({.last = 1, .every = 1}, steps), steps);
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
