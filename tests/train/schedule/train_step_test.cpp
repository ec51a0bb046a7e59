// SPDX-License-Identifier: Apache-2.0
#include "schedule/train_step.hpp"

#include "train/made_up_index.hpp"
#include "train/one_rank.hpp"

#include <array>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace lockstep
