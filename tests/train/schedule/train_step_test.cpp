// SPDX-License-Identifier: Apache-2.0
#include "schedule/train_step.hpp"

#include "lockstep/plan/losses.hpp"

#include "schedule/blank_step.hpp"
#include "support/unit.hpp"
#include "train/made_up_index.hpp"
#include "train/one_rank.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/ops/_amp_update_scale.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

struct Line : Classifier {
    torch::nn::Linear line = register_module("line", torch::nn::Linear(2, 1));
    torch::Tensor forward(const torch::Tensor& rows) override { return line(rows.flatten(1)); }
};

Field numbers_field(const std::string& name, std::vector<std::int64_t> shape) {
    return {.name = name, .type = ElementType::f32, .shape = std::move(shape)};
}

/// One batch.
class Given : public SampleFeed {
  public:
    Given(const Batch& batch, const InputReader& input) : batch_(batch), input_(input) {}
    const Batch& next() override { return batch_; }
    const Batch& batch() const override { return batch_; }
    LeafSamples read(const LeafRows& leaf) override { return input_.read(batch_, leaf); }

  private:
    const Batch& batch_;
    const InputReader& input_;
};

/// Steps of four samples in two leaves on one rank, beside those of LibTorch's own Adam.
class StepsOfALine : public testing::Test {
  protected:
    static constexpr double rate = 0.1;

    void SetUp() override { replica_.start({}); }

    // Whether it was skipped.
    bool step(const at::Tensor& rows, const at::Tensor& targets) {
        const std::array leaves{LeafRows{0, 0, 2}, LeafRows{1, 2, 2}};
        const std::array<std::uint64_t, 4> ids{0, 1, 2, 3};
        const std::array fields{bytes_in(rows), bytes_in(targets)};
        const Batch batch{
            .samples_in_step = 4, .leaves = leaves, .sample_ids = ids, .fields = fields};
        Given feed(batch, input_);
        return step_.run(feed, number_++, rate, {}).is_skipped;
    }

    void torch_step(const at::Tensor& rows, const at::Tensor& targets) {
        torch_.zero_grad();
        at::mse_loss(peer_->forward(rows).flatten(), targets).backward();
        torch_.step();
    }

    double distance() const {
        return (line_->line->weight - peer_->line->weight).abs().max().item<double>();
    }

    static std::span<const std::byte> bytes_in(const at::Tensor& values) {
        return {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()};
    }

    static std::shared_ptr<Line> seeded_line() {
        torch::manual_seed(1);
        return std::make_shared<Line>();
    }

    static TrainSettings settings() {
        TrainSettings settings;
        settings.batch = 4;
        settings.virtual_ranks = 2;
        settings.on_nonfinite = NonFinite::skip;
        return settings;
    }

    const std::shared_ptr<Line> line_ = seeded_line(), peer_ = seeded_line();
    torch::optim::Adam torch_{peer_->parameters(), torch::optim::AdamOptions(rate)};
    const TreePlan plan_{2, 1};
    Replica replica_{test::parts_of(line_, plan_, {.kind = OptimizerKind::adam})};
    const DatasetIndex data_ =
        test::made_up_index({numbers_field("features", {2}), numbers_field("targets", {})});
    const std::unique_ptr<Task> task_ = make_regression({}, data_.field("targets"));
    const InputReader input_{data_, {}, {}, data_, *task_};
    PhaseClock clock_;
    LossScale scale_;
    std::int64_t updates_ = 0, number_ = 0;
    const TrainSettings settings_ = settings();
    TrainStep step_{{settings_, replica_, input_.shape(), *task_, clock_, scale_, updates_}};
};

// torch.amp.GradScaler leaves out optimizer.step(), so that moments and their correction agree.
TEST_F(StepsOfALine, ThatAreSkippedAreNoUpdatesToAdam) {
    for (const bool is_finite : {true, false, false, false, true, true, false, true}) {
        const at::Tensor rows = torch::randn({4, 2}), targets = torch::randn({4});
        if (!is_finite) rows[1][0] = std::nan("");
        EXPECT_EQ(step(rows, targets), !is_finite);
        if (is_finite) torch_step(rows, targets);
        EXPECT_LT(distance(), 1e-6);
    }
    EXPECT_EQ(updates_, 4);
}

/// Registered as first, unused, norm, second; used as second(norm(first(x))).
struct Crossed : Classifier {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
    torch::nn::Linear unused = register_module("unused", torch::nn::Linear(1, 1));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
    torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
    torch::nn::Linear second =
        register_module("second", torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));

    torch::Tensor forward(const torch::Tensor& images) override {
        return second(drop(norm(first(images.flatten(1)))));
    }
};

std::unique_ptr<Task> three_classes() {
    return make_classification({}, {.class_counts = {1, 1, 1}});
}

BlankStep blank_step_of(const std::shared_ptr<Crossed>& model,
                        std::int64_t rows = 5,
                        const OptimizerSettings& optimizer = {}) {
    return run_blank_step(*model_of(model), *three_classes(), {1, 2, 2, 3}, rows, optimizer);
}

TEST(BlankStep, OrderIsTheReverseOfUseWithUnreachedParametersLast) {
    const auto model = std::make_shared<Crossed>();
    const auto order = blank_step_of(model).order;
    ASSERT_EQ(order.size(), 7U);
    EXPECT_EQ(order[0], 6U);  // second.weight
    EXPECT_THAT(std::vector(order.begin() + 1, order.begin() + 3),
                testing::UnorderedElementsAre(4U, 5U));  // norm
    EXPECT_THAT(std::vector(order.begin() + 3, order.begin() + 5),
                testing::UnorderedElementsAre(0U, 1U));  // first
    EXPECT_THAT(std::vector(order.begin() + 5, order.end()), testing::ElementsAre(2U, 3U));
}

/// A usual loss of PyTorch: the mean of all samples.
struct MeanLoss : Crossed {
    torch::Tensor forward(const torch::Tensor& images) override {
        return Crossed::forward(images).square().mean();
    }
};

TEST(BlankStep, SaysHowALossIsThatOfEachSample) {
    const Error error = test::error_of([&] {
        run_blank_step(*model_of(std::make_shared<MeanLoss>(), ModelAuthor::user_class),
                       *make_program_task(),
                       {1, 2, 2, 1},
                       5,
                       {});
    });
    EXPECT_EQ(error.code(), "E217");
    EXPECT_EQ(error.why(), "its output for 5 sample(s) is [], the task's targets need [5]");
    EXPECT_THAT(error.fix(), HasSubstr("reduction=\"none\""));
}

TEST(BlankStep, LeavesNothingBehind) {
    const auto model = std::make_shared<Crossed>();
    const at::Tensor weights = model->first->weight.detach().clone();
    blank_step_of(model);
    for (const at::Tensor& parameter : model->parameters())
        EXPECT_FALSE(parameter.grad().defined());
    EXPECT_TRUE(model->first->weight.equal(weights));
    EXPECT_TRUE(model->norm->running_var.equal(torch::ones({4})));
    EXPECT_EQ(model->norm->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST(BlankStep, HashIsThatOfEverythingComputed) {
    const auto model = std::make_shared<Crossed>();
    const std::string hash = blank_step_of(model).hash;
    torch::rand({1});  // dropout does not depend on what came before
    EXPECT_EQ(blank_step_of(model).hash, hash);
    EXPECT_NE(blank_step_of(model, 6).hash, hash);
    EXPECT_NE(blank_step_of(model, 5, {.kind = OptimizerKind::sgd}).hash, hash);
    float& weight = model->first->weight.data_ptr<float>()[3];
    weight = std::nextafter(weight, 2.0F);
    EXPECT_NE(blank_step_of(model).hash, hash);
}

struct Counted : Crossed {
    int passes = 0;

    torch::Tensor forward(const torch::Tensor& images) override {
        ++passes;
        return Crossed::forward(images);
    }
};

TEST(BlankStepSeconds, StopAfterOnePassThatTookLong) {
    const auto passes_within = [&](double enough_s) {
        const auto model = std::make_shared<Counted>();
        EXPECT_GT(blank_step_seconds(*model_of(model), *three_classes(), {1, 2, 2, 3}, 5, enough_s),
                  0);
        return model->passes;
    };
    EXPECT_EQ(passes_within(0), 1);
    EXPECT_EQ(passes_within(1e9), 3);
}

TEST(TakesSingleRows, TellsNormsOfOneValueFromThoseOfAMap) {
    const auto crossed = model_of(std::make_shared<Crossed>());
    EXPECT_FALSE(takes_single_rows(*crossed, {1, 2, 2, 3}));
    for (const NamedTensor& buffer : crossed->buffers())
        EXPECT_EQ(buffer.tensor.sum().item<float>(), buffer.name == "norm.running_var" ? 4 : 0);
    const ModelShape image{1, 28, 28, 10};
    EXPECT_TRUE(takes_single_rows(*model_of(make_model({"cnn-bn"}, image, 1)), image));
    EXPECT_FALSE(takes_single_rows(*model_of(make_model({"resnet18"}, image, 1)), image));
    const ModelShape larger{1, 64, 64, 10};
    EXPECT_TRUE(takes_single_rows(*model_of(make_model({"resnet18"}, larger, 1)), larger));
}

// What torch.amp.GradScaler is made of, with its own constants.
class TorchScale {
  public:
    explicit TorchScale(double first) : factor_(torch_float(first)) {}

    LossScale next(bool overflowed) {
        at::_amp_update_scale_(
            factor_, good_steps_, torch_float(overflowed ? 1 : 0), 2.0, 0.5, 2000);
        return {factor_.item<float>(), good_steps_.item<int>()};
    }

  private:
    static at::Tensor torch_float(double value) { return at::full({1}, value, at::kFloat); }
    at::Tensor factor_, good_steps_ = at::zeros({1}, at::kInt);
};

// Overflows in a row, alone, just before and just after the factor would have grown.
std::vector<bool> scripted_overflows() {
    std::vector<bool> steps(12'000, false);
    for (const std::size_t step : {0, 1, 2, 500, 2499, 4500, 6501, 6502, 11'999})
        steps[step] = true;
    return steps;
}

TEST(LossScale, FollowsThatOfTorch) {
    for (const double first : {1.0, 65536.0, 0x1p127}) {
        TorchScale torch(first);
        LossScale ours{first, 0};
        int grown = 0;
        for (const bool overflowed : scripted_overflows()) {
            const double before = ours.factor;
            ours = next_scale(ours, overflowed);
            grown += ours.factor > before ? 1 : 0;
            ASSERT_EQ(ours, torch.next(overflowed));
        }
        EXPECT_GE(grown, 3);
    }
}

TEST(LossScale, IsSpentAfterManyOverflowsMoreThanGoodSteps) {
    LossScale scale{65536, 0};
    int overflows = 0;
    for (; !is_spent(scale); ++overflows) scale = next_scale(next_scale(scale, false), true);
    EXPECT_EQ(overflows, 31);
}

}  // namespace
}  // namespace lockstep
