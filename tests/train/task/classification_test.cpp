// SPDX-License-Identifier: Apache-2.0
#include "support/unit.hpp"
#include "task/task.hpp"

#include <cmath>

#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::unique_ptr<Task> classes(std::size_t number, const TaskSettings& settings = {}) {
    return make_classification(settings, {.class_counts = std::vector<std::uint64_t>(number, 1)});
}

NamedTensors some_outputs() {
    return {{"output", torch::tensor({{4.F, 1.F, 1.F}, {0.F, 3.F, 1.F}, {2.F, 1.F, 0.F}})}};
}

LeafSamples labelled(const std::vector<std::int64_t>& labels) {
    return {.inputs = {}, .targets = {{"labels", torch::tensor(labels)}}, .weights = {}};
}

TEST(Classification, TakesAMixedSampleForBothOfItsLabels) {
    const auto task = classes(3);
    const NamedTensors outputs = some_outputs();
    LeafSamples mixed = labelled({0, 1, 2});
    mixed.targets.push_back({"partners", torch::tensor(std::vector<std::int64_t>{1, 2, 0})});
    mixed.targets.push_back({"share", torch::full({3}, 0.25F)});
    const float own = task->loss(outputs, labelled({0, 1, 2})).item<float>();
    const float partners = task->loss(outputs, labelled({1, 2, 0})).item<float>();
    EXPECT_NEAR(task->loss(outputs, mixed).item<float>(), 0.25 * own + 0.75 * partners, 1e-5);
}

TEST(Classification, EndsWithMeanLossAccuracyConfusionAndTheFirstFiveOfManyClasses) {
    const auto task = classes(3);
    TaskSums sums = task->sums(some_outputs(), labelled({0, 1, 2})).on_host();
    const Evaluation found = task->evaluation(sums, 3);
    EXPECT_NEAR(found.metrics.at("loss"), sums.reals[0] / 3, 1e-12);
    EXPECT_NEAR(found.metrics.at("accuracy"), 2.0 / 3, 1e-12);
    EXPECT_FALSE(found.metrics.contains("top5"));
    EXPECT_EQ(found.text, "accuracy 66.67 % (2 of 3)");
    EXPECT_EQ(found.confusion, "class,0,1,2\n0,1,0,0\n1,0,1,0\n2,1,0,0\n");
    const auto twenty = classes(20);
    const at::Tensor logits = torch::arange(20, torch::kFloat32).repeat({2, 1});  // 19 is first
    const TaskSums ranked = twenty->sums({{"output", logits}}, labelled({15, 14})).on_host();
    const Evaluation top = twenty->evaluation(ranked, 2);
    EXPECT_EQ(top.metrics.at("accuracy"), 0);
    EXPECT_EQ(top.metrics.at("top5"), 0.5);
    EXPECT_EQ(top.text, "accuracy 0.00 % (0 of 2), top-5 50.00 %");
}

// Two of class 0 are right, one of 1; one of 1 is taken for 2, which has no sample. Its log-odds of
// class 1 are -1.13, the second sample's -1.05: three of four pairs are in order.
TEST(Classification, HasFiguresOfEachClassAlsoOfNoSamples) {
    const auto task = classes(3);
    const at::Tensor logits =
        torch::tensor({{4.F, 1.F, 1.F}, {3.F, 2.F, 0.F}, {0.F, 3.F, 1.F}, {0.F, 1.F, 2.F}});
    const Evaluation found =
        task->evaluation(task->sums({{"output", logits}}, labelled({0, 0, 1, 1})).on_host(), 4);
    EXPECT_NEAR(found.metrics.at("f1"), (1.0 + 2.0 / 3 + 0) / 3, 1e-12);
    EXPECT_EQ(found.metrics.at("auc"), 0.875);
    EXPECT_EQ(found.by_class,
              "class                      samples precision    recall        F1       AUC\n"
              "0                                2    1.0000    1.0000    1.0000    1.0000\n"
              "1                                2    1.0000    0.5000    0.6667    0.7500\n"
              "2                                0    0.0000         -    0.0000         -\n");
    // --keep-best finds the names of metrics by no samples at all.
    const auto none = task->evaluation(task->no_sums(), 1).metrics;
    EXPECT_TRUE(std::isnan(none.at("f1")));
    EXPECT_TRUE(std::isnan(none.at("auc")));
    EXPECT_FALSE(classes(20)->evaluation(classes(20)->no_sums(), 1).metrics.contains("auc"));
}

// Against the pairs, counted one by one.
TEST(Classification, HasTheAreaUnderTheCurve) {
    torch::manual_seed(3);
    const std::int64_t count = 200;
    const at::Tensor labels = torch::randint(0, 2, {count}, torch::kInt64);
    const at::Tensor logits = torch::randn({count, 2});
    logits.select(1, 1).add_(labels.to(torch::kFloat));
    const at::Tensor scores = logits.select(1, 1) - logits.select(1, 0);
    const at::Tensor own = scores.index({labels.eq(1)}), others = scores.index({labels.eq(0)});
    const double area = own.unsqueeze(1).gt(others).to(torch::kDouble).mean().item<double>();
    const auto task = classes(2);
    const LeafSamples samples{.inputs = {}, .targets = {{"labels", labels}}, .weights = {}};
    const auto found = task->evaluation(task->sums({{"output", logits}}, samples).on_host(), count);
    EXPECT_NEAR(found.metrics.at("auc"), area, 0.0005);
    EXPECT_GT(area, 0.6);
    EXPECT_LT(area, 0.9);
}

TEST(Classification, SmoothsLabelsAndWeighsClassesAsTorchDoes) {
    namespace functional = torch::nn::functional;
    const TaskSettings settings{.label_smoothing = 0.1, .class_weights = "1,2,0.5"};
    const LeafSamples samples = labelled({0, 1, 2});
    const at::Tensor expected =
        functional::cross_entropy(only(some_outputs()),
                                  samples.targets[0].tensor,
                                  functional::CrossEntropyFuncOptions()
                                      .reduction(torch::kSum)
                                      .weight(torch::tensor({1.F, 2.F, 0.5F}))
                                      .label_smoothing(0.1));
    EXPECT_NEAR(classes(3, settings)->loss(some_outputs(), samples).item<float>(),
                expected.item<float>(),
                1e-5);
}

TEST(Classification, BalancesRareClassesAndRefusesWeightsThatAreNoneForEach) {
    // weights 8 / (2 * 6) and 8 / (2 * 2)
    const auto task = make_classification({.class_weights = "balanced"}, {.class_counts = {6, 2}});
    const NamedTensors even = {{"output", torch::zeros({2, 2})}};
    EXPECT_NEAR(task->loss(even, labelled({0, 1})).item<float>(),
                std::log(2.0) * (8.0 / 12 + 8.0 / 4),
                1e-5);
    for (const char* text : {"1,2", "1,x,1", "1,-1,1", "", "ballanced"})
        EXPECT_EQ(caught_code([&] { classes(3, {.class_weights = text}); }), "E103") << text;
}

TEST(Classification, RefusesWhatNothingCanBeLearnedFrom) {
    EXPECT_EQ(caught_code([] { classes(1)->class_warning(); }), "E217");
    EXPECT_EQ(classes(2)->class_warning(), "");
    const Field labels{.name = "labels", .class_counts = {0, 5, 4, 0}};
    const auto refused = [&](const char* weights) {
        return caught_code([&] { make_classification({.class_weights = weights}, labels); });
    };
    EXPECT_EQ(refused("0,0,0,0"), "E103");
    EXPECT_EQ(refused("1,0,0,1"), "E103") << "no sample has any of these";
    EXPECT_EQ(refused("0,1,0,0"), "");
    EXPECT_NE(make_classification({}, labels)->class_warning(), "");
}

TEST(Classification, QuotesNamesInTheConfusionAndMakesBlankTargetsOfEveryClass) {
    const Field labels{.class_names = {"cat, big", "\"dog\""}, .class_counts = {1, 1}};
    const Evaluation found =
        make_classification({}, labels)->evaluation({{0}, {1, 0, 1, 2, 3, 4}}, 10);
    EXPECT_EQ(found.confusion,
              "class,\"cat, big\",\"\"\"dog\"\"\"\n"
              "\"cat, big\",1,2\n\"\"\"dog\"\"\",3,4\n");
    const at::Tensor blank = classes(3)->blank_targets(4)[0].tensor;
    EXPECT_TRUE(blank.equal(torch::tensor(std::vector<std::int64_t>{0, 1, 2, 0})));
}

}  // namespace
}  // namespace lockstep
