// SPDX-License-Identifier: Apache-2.0
// All tasks: their losses add over samples, masked ones count nothing, and metrics are what their
// names say.
#include "support/unit.hpp"
#include "task/task.hpp"

#include <cmath>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

Field field_of(std::vector<std::int64_t> shape, std::size_t classes = 0) {
    return {.shape = std::move(shape), .class_counts = std::vector<std::uint64_t>(classes, 1)};
}

LeafSamples with_targets(const std::string& name, const at::Tensor& targets) {
    return {.inputs = {}, .targets = {{name, targets}}, .weights = {}};
}

LeafSamples labelled(const std::vector<std::int64_t>& labels) {
    return with_targets("labels", torch::tensor(labels));
}

NamedTensors output(const at::Tensor& values) {
    return {{"output", values}};
}

Evaluation evaluated(const Task& task, const at::Tensor& values, const LeafSamples& samples) {
    return task.evaluation(task.sums(output(values), samples).on_host(), values.size(0));
}

float loss_of(const Task& task, const at::Tensor& values, const LeafSamples& samples) {
    return task.loss(output(values), samples).item<float>();
}

struct TaskCase {
    std::string name;
    std::unique_ptr<Task> (*make)();
};

const std::vector<TaskCase> cases = {
    {"Classification", [] { return make_classification({}, field_of({}, 3)); }},
    {"MultiLabel", [] { return make_multi_label({}, field_of({3})); }},
    {"Regression", [] { return make_regression({}, field_of({2})); }},
    {"Huber", [] { return make_regression({.loss = RegressionLoss::huber}, field_of({})); }},
    {"Segmentation",
     [] {
         return make_segmentation({}, field_of({2, 3}, 4));
     }},
    {"NextToken", [] { return make_next_token({}, field_of({6}, 5)); }}};

// The loss of each sample and two metrics, one of them a number for all.
TEST(ProgramTask, AddsWhatAModelSaysOfItself) {
    const auto task = make_program_task();
    const NamedTensors outputs = {{"loss", torch::tensor({1.0F, 2.0F, 6.0F})},
                                  {"right", torch::tensor({true, true, false})},
                                  {"spread", torch::tensor(0.5F)}};
    task->name_outputs(outputs);
    EXPECT_EQ(task->classes_text(), "output 'loss' is minimised");
    LeafSamples samples;
    const auto found = [&](std::int64_t count) {
        return task->evaluation(task->sums(outputs, samples).on_host(), count).metrics;
    };
    const std::map<std::string, double> all = {{"loss", 3}, {"right", 2.0 / 3}, {"spread", 0.5}};
    EXPECT_EQ(found(3), all);
    samples.weights = torch::tensor({1.0F, 0.0F, 1.0F});
    const std::map<std::string, double> two = {{"loss", 3.5}, {"right", 0.5}, {"spread", 0.5}};
    EXPECT_EQ(found(2), two);
    EXPECT_EQ(task->loss(outputs, samples).item<float>(), 7);
    EXPECT_EQ(task->evaluation(task->sums(outputs, samples).on_host(), 2).text,
              "right 0.5, spread 0.5");
}

class EveryTask : public testing::TestWithParam<std::size_t> {
  protected:
    at::Tensor outputs(std::int64_t count) const {
        std::vector<std::int64_t> shape = task_->output_shape();
        shape.insert(shape.begin(), count);
        torch::manual_seed(3);
        return torch::randn(shape);
    }
    LeafSamples samples(std::int64_t count) const {
        return {.inputs = {}, .targets = task_->blank_targets(count), .weights = {}};
    }
    TaskSums sums(const at::Tensor& values, const LeafSamples& of) const {
        return task_->sums(output(values), of).on_host();
    }
    std::unique_ptr<Task> task_ = cases[GetParam()].make();
};
INSTANTIATE_TEST_SUITE_P(Tasks,
                         EveryTask,
                         testing::Range(std::size_t{0}, cases.size()),
                         [](const auto& one) { return cases[one.param].name; });

TEST_P(EveryTask, AddsItsLossAndSumsOverSamples) {
    const at::Tensor values = outputs(3);
    const LeafSamples all = samples(3);
    const TaskSums whole = sums(values, all);
    TaskSums parts = task_->no_sums();
    ASSERT_EQ(whole.reals.size(), parts.reals.size());
    ASSERT_EQ(whole.counts.size(), parts.counts.size());
    for (std::int64_t i = 0; i < 3; ++i) {
        const TaskSums one = sums(values.narrow(0, i, 1), all.part(i, 1));
        for (std::size_t k = 0; k < one.reals.size(); ++k) parts.reals[k] += one.reals[k];
        for (std::size_t k = 0; k < one.counts.size(); ++k) parts.counts[k] += one.counts[k];
    }
    EXPECT_EQ(whole.counts, parts.counts);
    EXPECT_THAT(whole.reals, testing::Pointwise(testing::DoubleNear(1e-5), parts.reals));
}

TEST_P(EveryTask, CountsMaskedSamplesForNothing) {
    LeafSamples all = samples(3);
    const LeafSamples rest = all.part(1, 2);
    all.weights = torch::tensor({0.F, 1.F, 1.F});
    const TaskSums masked = sums(outputs(3), all);
    const TaskSums kept = sums(outputs(3).narrow(0, 1, 2), rest);
    EXPECT_EQ(masked.counts, kept.counts);
    EXPECT_THAT(masked.reals, testing::Pointwise(testing::DoubleNear(1e-5), kept.reals));
}

TEST_P(EveryTask, HasAGradient) {
    at::Tensor values = outputs(2).requires_grad_();
    task_->loss(output(values), samples(2)).backward();
    EXPECT_TRUE(values.grad().isfinite().all().item<bool>());
    EXPECT_GT(values.grad().abs().sum().item<float>(), 0);
}

std::unique_ptr<Task> classes(std::size_t number, const TaskSettings& settings = {}) {
    return make_classification(settings, {.class_counts = std::vector<std::uint64_t>(number, 1)});
}

at::Tensor some_outputs() {
    return torch::tensor({{4.F, 1.F, 1.F}, {0.F, 3.F, 1.F}, {2.F, 1.F, 0.F}});
}

TEST(Classification, TakesAMixedSampleForBothOfItsLabels) {
    const auto task = classes(3);
    const at::Tensor outputs = some_outputs();
    LeafSamples mixed = labelled({0, 1, 2});
    mixed.targets.push_back({"partners", torch::tensor(std::vector<std::int64_t>{1, 2, 0})});
    mixed.targets.push_back({"share", torch::full({3}, 0.25F)});
    const float own = loss_of(*task, outputs, labelled({0, 1, 2}));
    const float partners = loss_of(*task, outputs, labelled({1, 2, 0}));
    EXPECT_NEAR(loss_of(*task, outputs, mixed), 0.25 * own + 0.75 * partners, 1e-5);
}

TEST(Classification, EndsWithMeanLossAccuracyConfusionAndTheFirstFiveOfManyClasses) {
    const auto task = classes(3);
    TaskSums sums = task->sums(output(some_outputs()), labelled({0, 1, 2})).on_host();
    const Evaluation found = task->evaluation(sums, 3);
    EXPECT_NEAR(found.metrics.at("loss"), sums.reals[0] / 3, 1e-12);
    EXPECT_NEAR(found.metrics.at("accuracy"), 2.0 / 3, 1e-12);
    EXPECT_FALSE(found.metrics.contains("top5"));
    EXPECT_EQ(found.text, "accuracy 66.67 % (2 of 3)");
    EXPECT_EQ(found.confusion, "class,0,1,2\n0,1,0,0\n1,0,1,0\n2,1,0,0\n");
    const auto twenty = classes(20);
    const at::Tensor logits = torch::arange(20, torch::kFloat32).repeat({2, 1});  // 19 is first
    const Evaluation top = evaluated(*twenty, logits, labelled({15, 14}));
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
    const Evaluation found = evaluated(*task, logits, labelled({0, 0, 1, 1}));
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
    const at::Tensor labels = torch::randint(0, 2, {200}, torch::kInt64);
    const at::Tensor logits = torch::randn({200, 2});
    logits.select(1, 1).add_(labels.to(torch::kFloat));
    const at::Tensor scores = logits.select(1, 1) - logits.select(1, 0);
    const at::Tensor own = scores.index({labels.eq(1)}), others = scores.index({labels.eq(0)});
    const double area = own.unsqueeze(1).gt(others).to(torch::kDouble).mean().item<double>();
    const Evaluation found = evaluated(*classes(2), logits, with_targets("labels", labels));
    EXPECT_NEAR(found.metrics.at("auc"), area, 0.0005);
    EXPECT_GT(area, 0.6);
    EXPECT_LT(area, 0.9);
}

TEST(Classification, SmoothsLabelsAndWeighsClassesAsTorchDoes) {
    namespace functional = torch::nn::functional;
    const TaskSettings settings{.label_smoothing = 0.1, .class_weights = "1,2,0.5"};
    const LeafSamples samples = labelled({0, 1, 2});
    const at::Tensor expected =
        functional::cross_entropy(some_outputs(),
                                  samples.targets[0].tensor,
                                  functional::CrossEntropyFuncOptions()
                                      .reduction(torch::kSum)
                                      .weight(torch::tensor({1.F, 2.F, 0.5F}))
                                      .label_smoothing(0.1));
    EXPECT_NEAR(
        loss_of(*classes(3, settings), some_outputs(), samples), expected.item<float>(), 1e-5);
}

TEST(Classification, BalancesRareClassesAndRefusesWeightsThatAreNoneForEach) {
    // weights 8 / (2 * 6) and 8 / (2 * 2)
    const auto task = make_classification({.class_weights = "balanced"}, {.class_counts = {6, 2}});
    EXPECT_NEAR(loss_of(*task, torch::zeros({2, 2}), labelled({0, 1})),
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

TEST(MultiLabel, MeasuresF1OverAllLabels) {
    const auto task = make_multi_label({}, field_of({3}));
    const auto samples = with_targets("labels", torch::tensor({{1.F, 0.F, 1.F}, {0.F, 1.F, 0.F}}));
    const at::Tensor logits = torch::tensor({{2.F, 3.F, -1.F}, {-1.F, 1.F, -1.F}});
    const Evaluation found = evaluated(*task, logits, samples);
    EXPECT_NEAR(found.metrics.at("f1"), 2.0 * 2 / (3 + 3), 1e-12);
    EXPECT_NEAR(found.metrics.at("accuracy"), 4.0 / 6, 1e-12);
    EXPECT_EQ(found.text, "F1 66.67 %, accuracy of labels 66.67 %");
}

TEST(Regression, HasTheDistancesOfItsLosses) {
    const at::Tensor found = torch::tensor({{0.F}, {0.F}}), there = torch::tensor({{0.5F}, {3.F}});
    const std::map<RegressionLoss, double> expected = {
        {RegressionLoss::mse, 0.25 + 9},
        {RegressionLoss::mae, 0.5 + 3},
        {RegressionLoss::huber, 0.125 + 2 * (3 - 1)}};
    for (const auto& [loss, sum] : expected) {
        const auto task = make_regression({.loss = loss, .huber_delta = 2}, field_of({}));
        EXPECT_NEAR(loss_of(*task, found, with_targets("targets", there)), sum, 1e-6);
    }
}

// The last sample has no label that is known.
TEST(MultiLabel, LeavesUnknownLabelsOut) {
    const auto task = make_multi_label({}, field_of({3}));
    const at::Tensor labels =
        torch::tensor({{1.F, -1.F, 0.F}, {0.F, 1.F, 1.F}, {-1.F, -1.F, -1.F}});
    const at::Tensor logits = torch::tensor({{2.F, 9.F, 1.F}, {-1.F, 3.F, -2.F}, {5.F, 5.F, 5.F}});
    const auto one = [](float logit, float label) {
        return std::log1p(std::exp(label > 0 ? -logit : logit));
    };
    const float expected = (one(2, 1) + one(1, 0)) / 2 + (one(-1, 0) + one(3, 1) + one(-2, 1)) / 3;
    const auto samples = with_targets("labels", labels);
    EXPECT_NEAR(loss_of(*task, logits, samples), expected, 1e-6);
    const Evaluation result = evaluated(*task, logits, samples);
    EXPECT_NEAR(result.metrics.at("accuracy"), 3.0 / 5, 1e-12);
    EXPECT_NEAR(result.metrics.at("f1"), 4.0 / 6, 1e-12);
    EXPECT_EQ(result.text, "F1 66.67 %, accuracy of labels 60.00 % (44.44 % unknown, left out)");
}

// Two numbers a sample; scikit-learn's r2_score of these is 0.5 and 1, and their mean.
TEST(Regression, MeasuresR2AsTheMeanOverNumbers) {
    const auto task = make_regression({}, field_of({2}));
    const at::Tensor there = torch::tensor({{1.F, 10.F}, {2.F, 20.F}, {3.F, 30.F}});
    const at::Tensor found = torch::tensor({{1.F, 10.F}, {2.F, 20.F}, {2.F, 30.F}});
    const Evaluation result = evaluated(*task, found, with_targets("targets", there));
    EXPECT_NEAR(result.metrics.at("r2"), (0.5 + 1) / 2, 1e-12);
    EXPECT_NEAR(result.metrics.at("mae"), 1.0 / 6, 1e-12);
    EXPECT_NEAR(result.metrics.at("rmse"), std::sqrt(1.0 / 6), 1e-12);
}

TEST(Regression, KeepsDigitsOfTargetsFarFromZero) {
    Field targets = field_of({});
    targets.mean = {1e6};
    const auto task = make_regression({}, targets);
    const at::Tensor there = torch::tensor({{1e6F}, {1e6F + 1}}), found = there + 0.5F;
    const Evaluation result = evaluated(*task, found, with_targets("targets", there));
    EXPECT_NEAR(result.metrics.at("r2"), 1 - 0.5 / 0.5, 1e-9);
}

TEST(Regression, ScalesTargetsAndKeepsTheirUnits) {
    Field targets = field_of({2});
    EXPECT_EQ(caught_code([&] { make_regression({.scales_targets = true}, targets); }), "E248")
        << "it has no mean";
    targets.mean = {1e30, 5}, targets.std = {2e30, 0};
    const auto task = make_regression({.scales_targets = true}, targets);
    const at::Tensor there = torch::tensor({{-1.F, 0.F}, {1.F, 0.F}}), found = there + 0.5F;
    EXPECT_TRUE(task->in_units(there).equal(torch::tensor({{-1e30F, 5.F}, {3e30F, 5.F}})));
    const LeafSamples samples = with_targets("targets", there);
    EXPECT_NEAR(loss_of(*task, found, samples), 2 * 0.25, 1e-6) << "scaled";
    const Evaluation result = evaluated(*task, found, samples);
    EXPECT_NEAR(result.metrics.at("mae") / (0.5 * (1e30 + 0.5) / 1), 1, 1e-6);
    EXPECT_NEAR(result.metrics.at("rmse") / std::sqrt((1e60 + 0.25) / 2), 1, 1e-6);
    EXPECT_NEAR(result.metrics.at("r2"), (0.75 + 0) / 2, 1e-9);
}

// 255 is void: the model has two outputs, and the second sample has no other pixel.
TEST(Segmentation, LeavesOutTheIgnoredClass) {
    Field field = field_of({1, 4});
    field.class_counts.resize(256);
    field.class_counts[0] = field.class_counts[1] = field.class_counts[255] = 1;
    const auto task = make_segmentation({.ignore_index = 255}, field);
    EXPECT_EQ(task->outputs(), 2);
    const at::Tensor masks =
        torch::tensor({{{0, 1, 1, 255}}, {{255, 255, 255, 255}}}, torch::kInt64);
    const at::Tensor logits = torch::randn({2, 2, 1, 4});
    const at::Tensor expected = at::cross_entropy_loss(
        logits.narrow(0, 0, 1), masks.narrow(0, 0, 1), {}, at::Reduction::Mean, 255);
    const LeafSamples samples = with_targets("masks", masks);
    EXPECT_NEAR(loss_of(*task, logits, samples), expected.item<float>(), 1e-6);
    const at::Tensor found = torch::tensor({{{0, 1, 0, 1}}, {{0, 0, 0, 0}}}, torch::kInt64);
    const at::Tensor sure = torch::one_hot(found, 2).permute({0, 3, 1, 2}).to(torch::kFloat32);
    const Evaluation result = evaluated(*task, sure, samples);
    EXPECT_NEAR(result.metrics.at("accuracy"), 2.0 / 3, 1e-12);
    EXPECT_EQ(result.confusion, "class,0,1\n0,1,0\n1,1,1\n");
}

TEST(Segmentation, MeasuresOverlapOverClassesThatAreThere) {
    const auto task = make_segmentation({}, field_of({1, 4}, 3));
    const at::Tensor masks = torch::tensor({{{0, 0, 0, 1}}}, torch::kInt64);
    const at::Tensor found = torch::tensor({{{0, 0, 1, 1}}}, torch::kInt64);
    const at::Tensor logits = torch::one_hot(found, 3).permute({0, 3, 1, 2}).to(torch::kFloat32);
    const Evaluation result = evaluated(*task, logits, with_targets("masks", masks));
    EXPECT_NEAR(result.metrics.at("iou"), (2.0 / 3 + 1.0 / 2) / 2, 1e-12);
    EXPECT_NEAR(result.metrics.at("accuracy"), 0.75, 1e-12);
    EXPECT_EQ(result.confusion, "class,0,1,2\n0,2,1,0\n1,0,1,0\n2,0,0,0\n");
    EXPECT_EQ(caught_code([] { make_segmentation({}, field_of({2, 2}, 2000)); }), "E217");
}

TEST(NextToken, MeasuresPerplexity) {
    const auto task = make_next_token({}, field_of({3}, 4));
    EXPECT_EQ(task->output_shape(), (std::vector<std::int64_t>{2, 4}));
    const auto samples = with_targets("tokens", torch::tensor({{1, 0}}, torch::kInt64));
    const Evaluation even = evaluated(*task, torch::zeros({1, 2, 4}), samples);
    EXPECT_NEAR(even.metrics.at("perplexity"), 4, 1e-5);
    EXPECT_EQ(even.metrics.at("accuracy"), 0.5);  // the first of equals is found
}

// Three samples, the second of which is masked.
struct Tokens {
    struct Learned {
        at::Tensor loss, gradient;
    };

    Tokens(std::int64_t length, std::int64_t vocabulary, at::ScalarType type)
        : task(make_next_token({}, field_of({length + 1}, static_cast<std::size_t>(vocabulary)))),
          logits((4 * torch::randn({3, length, vocabulary})).to(type)),
          samples(with_targets("tokens", torch::randint(vocabulary, {3, length}, at::kLong))) {
        samples.weights = torch::tensor({1.F, 0.F, 1.F});
    }
    Learned learned(const at::Tensor& from, const LeafSamples& with) const {
        constexpr double scale = 65536;  // of fp16
        const at::Tensor leaf = from.detach().clone().requires_grad_();
        const at::Tensor loss = task->loss(output(leaf), with);
        (loss * scale).backward();
        return {loss.detach(), leaf.grad()};
    }

    std::unique_ptr<Task> task;
    at::Tensor logits;
    LeafSamples samples;
};

class TokensIn16Bits : public testing::TestWithParam<at::ScalarType> {
  protected:
    void SetUp() override {
        torch::manual_seed(5);
        at::set_num_threads(1);
    }
    void TearDown() override { at::set_num_threads(threads_before_); }

  private:
    int threads_before_ = at::get_num_threads();
};
INSTANTIATE_TEST_SUITE_P(Types,
                         TokensIn16Bits,
                         testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& one) { return std::string(c10::toString(one.param)); });

TEST_P(TokensIn16Bits, AreLearnedWithTheBitsOfACopyInFp32WhateverThePieces) {
    using Extents = std::pair<std::int64_t, std::int64_t>;
    for (const auto& [length, vocabulary] :
         {Extents{2, 600'000}, {25, 50'257}, {40, 9'999}, {25, 100}}) {  // 1, 10, 52, all rows
        const Tokens tokens(length, vocabulary, GetParam());
        const auto copied = tokens.learned(tokens.logits.to(at::kFloat), tokens.samples);
        for (const int threads : {1, 2}) {
            at::set_num_threads(threads);
            const auto found = tokens.learned(tokens.logits, tokens.samples);
            EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
            EXPECT_TRUE(found.loss.equal(copied.loss)) << vocabulary;
            EXPECT_EQ(found.gradient.scalar_type(), GetParam());
            EXPECT_TRUE(found.gradient.equal(copied.gradient.to(GetParam()))) << vocabulary;
        }
        at::set_num_threads(1);
    }
}

TEST_P(TokensIn16Bits, AreLearnedWithTheSameBitsSampleBySample) {
    const Tokens tokens(25, 50'257, GetParam());
    const at::Tensor all = tokens.learned(tokens.logits, tokens.samples).gradient;
    for (std::int64_t i = 0; i < 3; ++i) {
        const auto one = tokens.learned(tokens.logits.narrow(0, i, 1), tokens.samples.part(i, 1));
        EXPECT_TRUE(one.gradient.equal(all.narrow(0, i, 1))) << i;
    }
}

// The unit roundoff is 2^-8 of bf16 and 2^-11 of fp16, and 2^-25 below the normal numbers of fp16.
TEST_P(TokensIn16Bits, HaveGradientsOfF64RoundedOnce) {
    const Tokens tokens(25, 50'257, GetParam());
    const auto exact = tokens.learned(tokens.logits.to(at::kDouble), tokens.samples);
    const auto found = tokens.learned(tokens.logits, tokens.samples);
    EXPECT_NEAR(found.loss.item<float>() / exact.loss.item<double>(), 1, 1e-6);
    const double share = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
    const double least = GetParam() == at::kHalf ? 0x1p-25 : 0;
    const at::Tensor off = (found.gradient.to(at::kDouble) - exact.gradient).abs();
    EXPECT_TRUE(off.le(1.01 * (share * exact.gradient.abs() + least)).all().item<bool>());
    EXPECT_TRUE(found.gradient[1].eq(0).all().item<bool>()) << "a masked sample";
}

}  // namespace
}  // namespace lockstep
