// SPDX-License-Identifier: Apache-2.0
#include "replica/replica.hpp"

#include "lockstep/core/error.hpp"

#include "train/one_rank.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

std::shared_ptr<Classifier> small_cnn() {
    return make_model({"cnn-bn", true}, {1, 8, 8, 10}, 1);
}

/// A step of two leaves, each of which `compute` computes.
template <class Compute>
void take_step(Replica& replica,
               Compute&& compute,
               const UpdateStep& step = {.number = 1, .rate = 1e-3},
               const UpdateRule& rule = {}) {
    replica.begin_step(LeafNorms::ignore);
    for (int leaf = 0; leaf < 2; ++leaf) {
        replica.begin_leaf(1);
        compute(leaf);
        replica.end_leaf();
    }
    replica.finish();
    replica.update(step, rule, 8);
    replica.publish();
}

/// One rank with two leaves a step.
class TwoLeaves : public testing::Test {
  protected:
    explicit TwoLeaves(const OptimizerSettings& optimizer = {})
        : replica(test::parts_of(module, plan, optimizer)) {}

    const std::shared_ptr<Classifier> module = small_cnn();
    const TreePlan plan{2, 1};
    Replica replica;
    const at::Tensor images = torch::rand({4, 1, 8, 8}), labels = torch::tensor({0, 1, 2, 3});

    void SetUp() override { replica.start(replica.counters()); }

    void run_leaf() {
        torch::nn::functional::cross_entropy(module->forward(images), labels).backward();
    }
    void run_step(std::int64_t number = 1) {
        take_step(replica, [&](int) { run_leaf(); }, {.number = number, .rate = 1e-3});
    }
    // One step with such a pixel, skipped if anything is not finite. Whether it was.
    bool skips_with(float value) {
        images[0][0][0][0] = value;
        const auto compute = [&](int) {
            run_leaf();
            replica.add(StepScalar::save_wanted, 1);
        };
        take_step(replica, compute, {.number = 1, .rate = 1e-3}, {.skips_nonfinite = true});
        return replica.decision().is_withheld != 0;
    }
    at::Tensor buffer(const std::string& name) const { return module->named_buffers()[name]; }
};

TEST_F(TwoLeaves, ParametersBecomeViewsThatKeepTheirValues) {
    const auto parameters = module->parameters(), fresh = small_cnn()->parameters();
    const ReplicaTensors tensors = replica.tensors();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(parameters[i].equal(fresh[i]));
        EXPECT_EQ(parameters[i].const_data_ptr(), tensors.pieces[i].data);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameters[i].const_data_ptr()) % 64, 0U);
    }
}

TEST_F(TwoLeaves, GradientsEqualAutogradsOwn) {
    const auto plain = small_cnn();
    plain->eval();
    replica.model().set_mode(ModelMode::evaluate);
    replica.begin_step(LeafNorms::ignore);
    replica.begin_leaf(1);
    run_leaf();
    torch::nn::functional::cross_entropy(plain->forward(images), labels).backward();
    const auto expected = plain->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(module->parameters()[i].grad().equal(expected[i].grad())) << i;
}

TEST_F(TwoLeaves, AreSkippedWithoutATraceWhereSomethingIsNotFinite) {
    EXPECT_FALSE(skips_with(0.5F));
    const std::string before = replica.hash();
    for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        EXPECT_TRUE(skips_with(value)) << value;
        EXPECT_EQ(replica.hash(), before) << value;
        EXPECT_EQ(buffer("norm1.num_batches_tracked").item<std::int64_t>(), 1);
        EXPECT_EQ(replica.scalar(StepScalar::save_wanted), 2);
    }
    EXPECT_FALSE(skips_with(0.5F));
    EXPECT_NE(replica.hash(), before);
}

// The last pass reaches one parameter only, and adds nothing.
TEST_F(TwoLeaves, AreMeasuredWithWhatTheirLastPassDoesNotReach) {
    const auto leaf_squares = [&](int passes) {
        replica.begin_step(LeafNorms::measure);
        for (int leaf = 0; leaf < 2; ++leaf) {
            replica.begin_leaf(passes);
            torch::manual_seed(leaf);  // of dropout
            run_leaf();
            if (passes > 1) replica.next_micro_batch();
            if (passes > 1) (0 * module->parameters().back()).sum().backward();
            replica.end_leaf();
        }
        replica.finish();
        replica.update({.number = 1, .rate = 0}, {}, 8);
        replica.publish();
        return replica.scalar(StepScalar::leaf_squares);
    };
    const float whole = leaf_squares(1);
    EXPECT_GT(whole, 0);
    EXPECT_EQ(leaf_squares(2), whole);
}

TEST_F(TwoLeaves, EachBeginsWithTheBuffersOfTheStepsStart) {
    const at::Tensor before = buffer("norm1.running_mean").clone();
    replica.begin_step(LeafNorms::ignore);
    replica.begin_leaf(1);
    run_leaf();
    EXPECT_FALSE(buffer("norm1.running_mean").equal(before));
    EXPECT_EQ(buffer("norm1.num_batches_tracked").item<std::int64_t>(), 1);
    replica.end_leaf();
    replica.begin_leaf(1);
    EXPECT_TRUE(buffer("norm1.running_mean").equal(before));
    EXPECT_EQ(buffer("norm1.num_batches_tracked").item<std::int64_t>(), 0);
}

TEST_F(TwoLeaves, BuffersAreAveragedAndCountersAdvanceTogether) {
    run_step();
    EXPECT_EQ(replica.counters(),
              (Counters{{"norm1.num_batches_tracked", 1}, {"norm2.num_batches_tracked", 1}}));
    const at::Tensor mean = buffer("norm1.running_mean").clone();
    const auto plain = small_cnn();
    plain->forward(images);  // both leaves had the same samples
    EXPECT_TRUE(mean.allclose(plain->named_buffers()["norm1.running_mean"]));
}

TEST_F(TwoLeaves, ALeafWithoutSamplesCountsForNothing) {
    replica.begin_step(LeafNorms::ignore);
    replica.begin_leaf(1);
    run_leaf();
    const at::Tensor seen = buffer("norm1.running_mean").clone();
    replica.end_leaf();
    replica.begin_leaf(0);
    replica.add(StepScalar::save_wanted, 1);
    replica.end_leaf();
    replica.finish();
    replica.update({.number = 1, .rate = 1e-3}, {}, 1);
    replica.publish();
    EXPECT_TRUE(buffer("norm1.running_mean").equal(seen));
    EXPECT_EQ(replica.scalar(StepScalar::save_wanted), 1);
    EXPECT_EQ(replica.scalar(StepScalar::requeue_wanted), 0);
}

TEST_F(TwoLeaves, HashIsThatOfAllValues) {
    const std::string at_start = replica.hash();
    replica.start({{"norm1.num_batches_tracked", 0}, {"norm2.num_batches_tracked", 1}});
    EXPECT_NE(replica.hash(), at_start) << "a counter";
    replica.start({{"norm1.num_batches_tracked", 0}, {"norm2.num_batches_tracked", 0}});
    EXPECT_EQ(replica.hash(), at_start);
    const ReplicaTensors tensors = replica.tensors();
    for (const TensorPiece& piece : tensors.pieces) {
        const bool is_optimizers = tensors.metas[piece.tensor].name.starts_with("optimizer.");
        const float before = std::exchange(piece.data[piece.count - 1], 4711.F);
        EXPECT_EQ(replica.hash() == at_start, is_optimizers) << tensors.metas[piece.tensor].name;
        piece.data[piece.count - 1] = before;
    }
}

TEST_F(TwoLeaves, TensorsAreThoseOfModelAndOptimizer) {
    std::size_t elements = 0, covered = 0;
    const ReplicaTensors tensors = replica.tensors();
    for (const TensorMeta& meta : tensors.metas) elements += meta.count();
    for (const TensorPiece& piece : tensors.pieces) covered += piece.count;
    EXPECT_EQ(covered, elements);
    const auto has = [&](const char* name) {
        return std::ranges::count(tensors.metas, name, &TensorMeta::name) == 1;
    };
    EXPECT_TRUE(has("fc2.weight") && has("norm1.running_var") && has("optimizer.v.fc2.weight"));
}

struct TwoLeavesAveraged : TwoLeaves {
    TwoLeavesAveraged() : TwoLeaves({.average_decay = 0.5}) {}
    at::Tensor weights() const { return module->parameters()[0].detach().clone(); }
};

TEST_F(TwoLeavesAveraged, ModelComputesWithTheAverageAndThenWithItsWeights) {
    at::Tensor average = weights();
    for (const int number : {1, 2}) {
        run_step(number);
        average += 0.5 * (weights() - average);
    }
    const at::Tensor trained = weights();
    const std::string hash = replica.hash();
    replica.swap_average();
    EXPECT_TRUE(weights().allclose(average));
    EXPECT_FALSE(weights().allclose(trained));
    replica.swap_average();
    EXPECT_TRUE(weights().equal(trained));
    EXPECT_EQ(replica.hash(), hash);
}

TEST_F(TwoLeavesAveraged, AverageBeginsWithTheInitialWeightsAndIsOneOfTheTensors) {
    const at::Tensor initial = weights();
    replica.swap_average();
    EXPECT_TRUE(weights().equal(initial));
    const auto metas = replica.tensors().metas;
    EXPECT_EQ(std::ranges::count(metas, "optimizer.average.fc2.weight", &TensorMeta::name), 1);
}

TEST_F(TwoLeaves, SwapsNothingWithoutAnAverage) {
    run_step();
    const std::string hash = replica.hash();
    replica.swap_average();
    EXPECT_EQ(replica.hash(), hash);
}

TEST_F(TwoLeaves, CountersComeBack) {
    replica.start({{"norm1.num_batches_tracked", 41}, {"norm2.num_batches_tracked", 42}});
    EXPECT_EQ(replica.counters().at("norm2.num_batches_tracked"), 42);
    EXPECT_EQ(buffer("norm1.num_batches_tracked").item<std::int64_t>(), 41);
    EXPECT_THROW(replica.start({{"norm1.num_batches_tracked", 1}}), Error);
}

/// As of a layer that its first batch sets up.
struct WithFlag : Classifier {
    WithFlag() { register_parameter("w", torch::ones({1})); }
    at::Tensor forward(const at::Tensor& x) override {
        begun.fill_(true);
        return x * parameters()[0];
    }
    at::Tensor begun = register_buffer("begun", torch::zeros({}, torch::kBool));
};

TEST(Flags, AreCountersOfOneAtMost) {
    const auto module = std::make_shared<WithFlag>();
    const TreePlan plan(2, 1);
    Replica replica(test::parts_of(module, plan));
    replica.start(replica.counters());
    for (const std::int64_t number : {1, 2}) {
        take_step(replica,
                  [&](int) { module->forward(torch::ones({4})).sum().backward(); },
                  {.number = number, .rate = 1e-3});
        EXPECT_EQ(replica.counters(), (Counters{{"begun", 1}}));
        EXPECT_TRUE(module->begun.item<bool>());
    }
    replica.start({{"begun", 0}});
    EXPECT_FALSE(module->begun.item<bool>());
}

/// y = always x, with a parameter that some steps use, one that none does, and a frozen one.
struct Partly : Classifier {
    Partly() {
        torch::manual_seed(3);
        for (const char* name : {"always", "sometimes", "never", "frozen"})
            register_parameter(name, torch::randn({6, 4}), std::string(name) != "frozen");
    }
    at::Tensor forward(const at::Tensor& x) override { return x.mm(parameters()[0]); }
};

/// Of weights that are the replica's, or an optimizer's of LibTorch: the second leaf of every third
/// step uses "sometimes".
at::Tensor partly_loss(Classifier& module, int step, int leaf) {
    torch::manual_seed(10 * step + leaf);
    const at::Tensor x = torch::randn({5, 6});
    const auto named = module.named_parameters();
    at::Tensor y = x.mm(named["always"]) + x.mm(named["frozen"]);
    if (step % 3 == 1 && leaf == 1) y = y + x.mm(named["sometimes"]);
    return y.pow(2).mean();
}

/// What `optimizer` makes of them in 20 steps.
std::shared_ptr<Classifier> trained_partly(const OptimizerSettings& optimizer) {
    const auto module = std::make_shared<Partly>();
    const TreePlan plan(2, 1);
    Replica replica(test::parts_of(module, plan, optimizer));
    replica.start(replica.counters());
    for (int step = 0; step < 20; ++step)
        take_step(replica,
                  [&](int leaf) { partly_loss(*module, step, leaf).backward(); },
                  {.number = step + 1, .rate = 0.01});
    EXPECT_EQ(replica.counters(),
              (Counters{{"optimizer.missed.never", 20}, {"optimizer.missed.sometimes", 13}}));
    // Views of the replica's memory do not outlive it.
    const at::NoGradGuard none;
    for (at::Tensor& parameter : module->parameters()) parameter.set_data(parameter.clone());
    return module;
}

void expect_only_unused_stay(const Classifier& trained) {
    const auto start = std::make_shared<Partly>()->named_parameters();
    for (const auto& parameter : trained.named_parameters()) {
        const bool stays = parameter.key() == "never" || parameter.key() == "frozen";
        EXPECT_EQ(parameter->equal(start[parameter.key()]), stays) << parameter.key();
    }
}

TEST(Replica, LeavesParametersWithoutGradientsAloneAsLibTorchDoes) {
    constexpr double decay = 0.1, rate = 0.01;
    const auto compare = [&](const OptimizerSettings& settings, auto make) {
        const auto ours = trained_partly(settings);
        const auto theirs = std::make_shared<Partly>();
        const auto optimizer = make(theirs->parameters());
        for (int step = 0; step < 20; ++step) {
            optimizer->zero_grad(/*set_to_none=*/true);
            for (int leaf = 0; leaf < 2; ++leaf) partly_loss(*theirs, step, leaf).backward();
            optimizer->step();
        }
        for (const auto& parameter : ours->named_parameters()) {
            const at::Tensor expected = theirs->named_parameters()[parameter.key()];
            EXPECT_LT((*parameter - expected).abs().max().item<double>(), 1e-6) << parameter.key();
        }
        expect_only_unused_stay(*ours);
    };
    using namespace torch::optim;
    compare({.kind = OptimizerKind::sgd, .momentum = 0.9, .weight_decay = decay},
            [&](const auto& parameters) {
                return std::make_unique<SGD>(parameters,
                                             SGDOptions(rate).momentum(0.9).weight_decay(decay));
            });
    compare({.kind = OptimizerKind::adam, .weight_decay = decay}, [&](const auto& parameters) {
        return std::make_unique<Adam>(parameters, AdamOptions(rate).weight_decay(decay));
    });
    compare({.kind = OptimizerKind::adamw, .weight_decay = decay}, [&](const auto& parameters) {
        return std::make_unique<AdamW>(parameters, AdamWOptions(rate).weight_decay(decay));
    });
}

TEST(Replica, LeavesParametersWithoutGradientsAloneWhereTensorsHaveRates) {
    for (const OptimizerKind kind : {OptimizerKind::lars, OptimizerKind::lamb})
        expect_only_unused_stay(*trained_partly({.kind = kind, .weight_decay = 0.1}));
}

TEST(OnGradient, FiresOnceAfterAllUsesAndErrorsReachTheCallerOfBackward) {
    auto weight = torch::ones({2}, torch::requires_grad());
    int fired = 0;
    float seen = 0;
    on_gradient(weight, [&](const at::Tensor& parameter) {
        ++fired;
        seen = parameter.grad()[0].item<float>();
    });
    (weight * 2 + weight * 3).sum().backward();
    EXPECT_EQ(fired, 1);
    EXPECT_EQ(seen, 5);
    auto other = torch::ones({2}, torch::requires_grad());
    on_gradient(other, [](const at::Tensor&) { throw std::runtime_error("from the hook"); });
    EXPECT_THROW(other.sum().backward(), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
