// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_scope.hpp"
#include "model/model.hpp"
#include "replica/replica.hpp"
#include "schedule/leaf_passes.hpp"
#include "train/one_rank.hpp"

#include <cmath>
#include <memory>
#include <new>
#include <string>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/nn.h>

namespace lockstep {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// A model of one linear layer and something in front of it.
struct OneLayer : Classifier {
    nn::Linear last = register_module("last", nn::Linear(8, 3));
    Tensor factor = register_parameter("factor", torch::rand({8}) + 0.5);

    virtual Tensor first(const Tensor& x) = 0;
    Tensor forward(const Tensor& images) override { return last(first(images.flatten(1))); }
};

struct Multiplied : OneLayer {
    Tensor first(const Tensor& x) override { return x * factor; }
};

struct Summed : OneLayer {
    Tensor first(const Tensor& x) override { return torch::einsum("bi,i->bi", {x, factor}); }
};

struct Scale : torch::autograd::Function<Scale> {
    static Tensor forward(torch::autograd::AutogradContext* context,
                          const Tensor& x,
                          const Tensor& factor) {
        context->save_for_backward({x, factor});
        return x * factor;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
    }
};

struct Custom : OneLayer {
    Tensor first(const Tensor& x) override { return Scale::apply(x, factor); }
};

/// Its samples are not the first dimension where it meets its weights.
struct Turned : Classifier {
    nn::Linear layer = register_module("layer", nn::Linear(2, 3));
    Tensor forward(const Tensor& images) override {
        const Tensor x = images.reshape({images.size(0), 4, 2}).transpose(0, 1);
        return layer(x.reshape({-1, 2})).reshape({4, images.size(0), 3}).sum(0);
    }
};

/// Draws one number for all samples of a leaf.
struct SharedNoise : OneLayer {
    Tensor first(const Tensor& x) override { return x + torch::rand({8}) + factor; }
};

/// One weight in two places, dropout, a norm over batches, one over features, a bias for each
/// place.
struct Mixed : Classifier {
    nn::Linear wide = register_module("wide", nn::Linear(8, 8));
    nn::BatchNorm1d batch_norm = register_module("batch_norm", nn::BatchNorm1d(8));
    nn::LayerNorm layer_norm =
        register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({8})));
    nn::Linear last = register_module("last", nn::Linear(8, 3));
    Tensor bias = register_parameter("bias", torch::rand({1, 8}));
    Tensor unused = register_parameter("unused", torch::rand({2}));

    Tensor forward(const Tensor& images) override {
        Tensor x = torch::dropout(wide(images.flatten(1)), 0.3, is_training()).relu();
        x = batch_norm(wide(x)) + bias;
        return last(torch::dropout(layer_norm(x), 0.2, is_training()));
    }
};

/// A row of a product's weight, which a norm over batches has as its own.
struct SharedRow : Classifier {
    nn::Linear wide = register_module("wide", nn::Linear(8, 8));
    nn::Linear last = register_module("last", nn::Linear(8, 3));
    Tensor forward(const Tensor& images) override {
        const Tensor x = wide(images.flatten(1)), row = wide->weight.select(0, 0);
        return last(torch::batch_norm(x, row, {}, {}, {}, true, 0.1, 1e-5, false));
    }
};

/// The next token of each one alone.
struct Pairs : Classifier {
    nn::Embedding table = register_module("table", nn::Embedding(16, 8));
    nn::Linear last = register_module("last", nn::Linear(8, 16));
    Tensor forward(const Tensor& tokens) override { return last(table(tokens)); }
};

/// Group norms of images whose channels lie last.
struct Grouped : Classifier {
    nn::Conv2d conv = register_module("conv", nn::Conv2d(1, 8, 3));
    nn::GroupNorm norm = register_module("norm", nn::GroupNorm(2, 8));
    nn::Linear last = register_module("last", nn::Linear(8, 10));
    Tensor forward(const Tensor& images) override {
        const Tensor x = conv(images).contiguous(at::MemoryFormat::ChannelsLast);
        return last(norm(x).relu().mean({2, 3}));
    }
};

std::unique_ptr<Task> task_of(std::int64_t classes) {
    return make_classification(
        {}, {.class_counts = std::vector<std::uint64_t>(static_cast<std::size_t>(classes), 1)});
}

Replica::Parts in_16_bits(Replica::Parts parts, const Task& task) {
    EXPECT_TRUE(task.takes_16_bits());
    parts.model =
        with_precision(std::move(parts.model), Precision::bf16, ReducedOutputs::as_is_to_learn);
    return parts;
}

/// One rank that has all leaves, of `rows` samples of 1x2x4.
class Rehearsal {
  public:
    explicit Rehearsal(const std::shared_ptr<Classifier>& module,
                       int leaves = 4,
                       ModelShape shape = {1, 2, 4, 3})
        : shape_(shape),
          plan_(leaves, 1),
          replica_(test::parts_of(module, plan_)),
          task_(task_of(shape.classes)) {
        replica_.start(replica_.counters());
    }
    /// Of tokens, in bf16.
    Rehearsal(const std::shared_ptr<Classifier>& module,
              std::unique_ptr<Task> task,
              ModelShape shape)
        : shape_(shape),
          plan_(4, 1),
          replica_(in_16_bits(test::parts_of(module, plan_), *task)),
          task_(std::move(task)) {
        replica_.start(replica_.counters());
    }

    std::string run(std::int64_t rows = 4,
                    Walk walk = Walk::counts,
                    std::uint64_t most_bytes = 1 << 30) {
        return LeafPasses(replica_, *task_, shape_, clock_)
            .rehearse({plan_.virtual_ranks(), rows}, {.samples = 64}, most_bytes, walk);
    }
    LeafSpeed speed() {  // of leaves of four samples
        return LeafPasses(replica_, *task_, shape_, clock_)
            .speed({plan_.virtual_ranks(), 4}, {.samples = 64})
            .value_or(LeafSpeed{});
    }
    std::string hash() const { return replica_.hash(); }

  private:
    ModelShape shape_;
    TreePlan plan_;
    Replica replica_;
    std::unique_ptr<Task> task_;
    PhaseClock clock_;
};

TEST(Leaves, HaveTheSameBitsTogetherAsOneByOne) {
    torch::manual_seed(3);
    const auto model = std::make_shared<Mixed>();
    Rehearsal rehearsal(model);
    const std::string before = rehearsal.hash();
    EXPECT_EQ(rehearsal.run(), "");
    EXPECT_EQ(rehearsal.run(20), "");
    EXPECT_EQ(Rehearsal(std::make_shared<SharedRow>()).run(), "");
    EXPECT_GT(rehearsal.speed().together, 0);
    EXPECT_GT(rehearsal.speed().as_one, 0);
    EXPECT_EQ(rehearsal.run(), "") << "after the speed was found";
    EXPECT_EQ(rehearsal.hash(), before);
    EXPECT_EQ(model->batch_norm->num_batches_tracked.item<std::int64_t>(), 0);
    EXPECT_TRUE(model->batch_norm->running_mean.equal(torch::zeros({8})));
}

TEST(Leaves, OfImagesHaveTheSameBitsTogether) {
    const ModelShape shape{1, 32, 32, 10};
    EXPECT_EQ(Rehearsal(std::make_shared<Grouped>(), 4, shape).run(), "");
    for (const char* name : {"cnn", "cnn-bn", "mlp", "resnet18"}) {
        EXPECT_EQ(Rehearsal(make_model({name, true}, shape, 1), 4, shape).run(), "") << name;
    }
}

TEST(Leaves, OfTokensIn16BitsHaveTheSameBitsTogether) {
    at::set_num_threads(1);  // several copy all logits
    auto task =
        make_next_token({}, {.shape = {6}, .class_counts = std::vector<std::uint64_t>(16, 1)});
    Rehearsal rehearsal(std::make_shared<Pairs>(), std::move(task), {1, 1, 5, 16, 16});
    EXPECT_EQ(rehearsal.run(), "");
}

TEST(Leaves, GoOneByOneWhereAnOperatorIsNotKnown) {
    EXPECT_EQ(Rehearsal(std::make_shared<Multiplied>()).run(), "MulBackward0");
    EXPECT_EQ(Rehearsal(std::make_shared<Summed>()).run(), "MulBackward0");
    EXPECT_THAT(Rehearsal(std::make_shared<Custom>()).run(), testing::HasSubstr("Scale"));
}

TEST(Leaves, AreKnownToGoOneByOneBeforeThereIsAReplica) {
    const auto task = task_of(3);
    const auto obstacle = [&](const std::shared_ptr<Classifier>& module) {
        const auto model = model_of(module);
        return leaves_obstacle(*model, *task, {1, 2, 4, 3}, {2, 8});
    };
    EXPECT_EQ(obstacle(std::make_shared<Multiplied>()), "MulBackward0");
    const auto mixed = std::make_shared<Mixed>();
    EXPECT_EQ(obstacle(mixed), "");
    EXPECT_TRUE(mixed->batch_norm->running_mean.equal(torch::zeros({8})));
    EXPECT_EQ(mixed->batch_norm->num_batches_tracked.item<std::int64_t>(), 0);
    EXPECT_FALSE(mixed->last->weight.grad().defined());
    EXPECT_EQ(obstacle(std::make_shared<SharedNoise>()), "random numbers of all samples at once");
}

TEST(Leaves, GoOneByOneWhereBitsDifferWhateverTheGraphSays) {
    for (const std::shared_ptr<Classifier>& model :
         {std::shared_ptr<Classifier>(std::make_shared<Multiplied>()),
          std::shared_ptr<Classifier>(std::make_shared<Summed>()),
          std::shared_ptr<Classifier>(std::make_shared<Custom>())})
        EXPECT_EQ(Rehearsal(model).run(4, Walk::is_ignored), "bits differ");
    EXPECT_EQ(Rehearsal(std::make_shared<Turned>()).run(), "bits differ");
}

TEST(Leaves, GoOneByOneWhereAllWouldTakeTooMuchMemory) {
    const ModelShape shape{1, 32, 32, 10};
    Rehearsal cnn(make_model({"cnn", true}, shape, 1), 4, shape);
    EXPECT_THAT(cnn.run(4, Walk::counts, 1 << 20),
                testing::ContainsRegex("16 samples at once would take [0-9.]+ MiB"));
    EXPECT_EQ(cnn.run(), "");
}

struct Squashed : OneLayer {
    Tensor first(const Tensor& x) override {
        return (x + factor).slice(1, 0, 7).sigmoid().mean(1, true) + x;
    }
};

/// Its gradients vanish, but not in a rehearsal, whose weights are others.
struct Cold : Turned {
    nn::Linear zeros = register_module("zeros", nn::Linear(3, 3));
    Cold() {
        const torch::NoGradGuard no_gradients;
        zeros->weight.zero_();
    }
    Tensor forward(const Tensor& images) override { return zeros(Turned::forward(images)); }
};

/// Counts samples; its batch norm has no parameters.
struct Counting : Classifier {
    nn::Linear first = register_module("first", nn::Linear(8, 8));
    nn::BatchNorm1d norm =
        register_module("norm", nn::BatchNorm1d(nn::BatchNorm1dOptions(8).affine(false)));
    nn::Linear last = register_module("last", nn::Linear(8, 3));
    Tensor seen = register_buffer("seen", torch::zeros({}, torch::kLong));
    std::int64_t factor;

    explicit Counting(std::int64_t f) : factor(f) {}
    Tensor forward(const Tensor& images) override {
        seen += factor * images.size(0);
        return last(norm(first(images.flatten(1))));
    }
};

TEST(Leaves, GoOneByOneWhereTheirNumberOrPlaceShows) {
    EXPECT_EQ(Rehearsal(std::make_shared<Squashed>()).run(), "SigmoidBackward0");
    EXPECT_EQ(Rehearsal(std::make_shared<Cold>()).run(), "bits differ");
    EXPECT_EQ(Rehearsal(std::make_shared<Counting>(1)).run(), "bits differ");
    EXPECT_EQ(Rehearsal(std::make_shared<Counting>(0)).run(), "");
    EXPECT_EQ(Rehearsal(std::make_shared<SharedNoise>()).run(),
              "random numbers of all samples at once");
}

/// Branches by a value, which made-up samples never have otherwise.
struct Branching : Classifier {
    nn::Linear last = register_module("last", nn::Linear(8, 3));
    Tensor limit = register_buffer("limit", torch::full({}, 1e6F));
    bool reads_samples;

    explicit Branching(bool reads) : reads_samples(reads) {}
    Tensor forward(const Tensor& images) override {
        const Tensor x = last(images.flatten(1));
        const float most = limit.item<float>();
        return reads_samples && x.abs().max().item<float>() > most ? 2 * x : x;
    }
};

TEST(Leaves, GoOneByOneWhereTheModelReadsValuesOfSamples) {
    EXPECT_EQ(Rehearsal(std::make_shared<Branching>(true)).run(),
              "the model reads values, as item() does");
    EXPECT_EQ(Rehearsal(std::make_shared<Branching>(false)).run(), "");
}

TEST(Leaves, CallAModelsOwnHooks) {
    const auto model = std::make_shared<Mixed>();
    int calls = 0;
    model->last->weight.register_hook([&](const Tensor& gradient) {
        ++calls;
        return gradient;
    });
    EXPECT_EQ(Rehearsal(model).run(), "AddmmBackward0");
    EXPECT_EQ(calls, 4);
}

TEST(Leaves, DrawFromGeneratorsOfTheirOwn) {
    const LeafCut cut{3, 4};
    Tensor together = torch::empty({12, 5});
    {
        LeafVerdicts verdicts;
        const LeafScope scope(cut, {7, 8, 9}, verdicts, at::kCPU);
        together.bernoulli_(0.5);
    }
    for (std::int64_t leaf = 0; leaf < 3; ++leaf) {
        torch::manual_seed(static_cast<std::uint64_t>(7 + leaf));
        EXPECT_TRUE(cut.part(together, leaf).equal(torch::empty({4, 5}).bernoulli_(0.5)));
    }
}

// What any kernel computes alike shows nothing.
TEST(LeafScope, TakesAllLeavesAtOnceOnlyWhereTheFirstHadTheBitsOfEach) {
    LeafVerdicts verdicts;
    LeafScope scope({.leaves = 2, .rows = 3}, {1, 2}, verdicts, at::kCPU);
    const LeafScope::Pause pause;
    const auto is_taken = [&](std::int64_t key, const Tensor& all, const Tensor& leaves) {
        return scope.decide({key}, [&] { return LeafScope::has_same_bits(all, leaves); });
    };
    const Tensor some = torch::rand({2, 4}) + 1, zeros = torch::zeros({2, 4});
    Tensor other = some.clone();
    other[1][3] = std::nextafter(some[1][3].item<float>(), 9.0F);
    EXPECT_TRUE(is_taken(1, some, some.clone()));
    EXPECT_TRUE(is_taken(1, some, other)) << "asked once";
    EXPECT_FALSE(is_taken(2, some, other));
    EXPECT_FALSE(is_taken(2, some, some)) << "asked once";
    EXPECT_FALSE(is_taken(3, some.t().contiguous().t(), some)) << "other strides";
    EXPECT_FALSE(is_taken(4, zeros, zeros));
    EXPECT_FALSE(is_taken(5, some / zeros, some / zeros));
    const auto ends = []() -> bool { throw std::bad_alloc(); };
    EXPECT_THROW(scope.decide({6}, ends), std::bad_alloc);
    EXPECT_FALSE(is_taken(6, some, other)) << "a comparison that did not end decides nothing";
}

}  // namespace
}  // namespace lockstep
