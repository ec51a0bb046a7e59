// SPDX-License-Identifier: Apache-2.0
// The built-in models; train/model/models_peer compares those beside the small ones with
// torchvision's.
#include "lockstep/train/model.hpp"

#include "model/built_in.hpp"
#include "support/caught.hpp"

#include <algorithm>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace lockstep::models {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t element_count(const torch::nn::Module& module) {
    std::int64_t count = 0;
    for (const auto& parameter : module.parameters()) count += parameter.numel();
    return count;
}

Tensor images(std::int64_t n, const ModelShape& shape) {
    return torch::randn({n, shape.channels, shape.height, shape.width})
        .contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(Cnn, HasTheBooksNumbersOfParameters) {
    EXPECT_EQ(element_count(*make_model({"cnn", true}, {1, 28, 28, 10}, 1)), 1'630'090);
    EXPECT_EQ(element_count(*make_model({"cnn", true}, {3, 32, 32, 10}, 1)), 2'122'186);
    EXPECT_EQ(element_count(*make_model({"cnn", false}, {1, 28, 28, 10}, 1)), 1'629'472);
}

TEST(Models, DependOnTheSeedOnlyAndUnknownNamesSuggestTheNearest) {
    const auto a = make_model({"cnn", true}, {}, 5), b = make_model({"cnn", true}, {}, 5);
    const auto c = make_model({"cnn", true}, {}, 6);
    EXPECT_TRUE(a->parameters()[0].equal(b->parameters()[0]));
    EXPECT_FALSE(a->parameters()[0].equal(c->parameters()[0]));
    const Error error = test::error_of([] { make_model({"cmn", true}, {}, 1); });
    EXPECT_EQ(error.code(), "E103");
    EXPECT_EQ(error.fix(), "did you mean 'cnn'?");
}

TEST(RegisterModel, AddsAUsersModel) {
    register_model("users-own", [](const ModelShape& shape, const ModelSettings& settings) {
        return make_model({"mlp", settings.bias}, shape, 3);
    });
    EXPECT_EQ(element_count(*make_model({"users-own", true}, {1, 2, 2, 10}, 1)),
              element_count(*make_model({"mlp", true}, {1, 2, 2, 10}, 1)));
    register_model("users-own", nullptr);
    EXPECT_EQ(make_model({"users-own"}, {}, 1), nullptr) << "which a run refuses, as its factory's";
}

TEST(ModelTable, IsOfAllModelsThatCanBeMade) {
    for (const ModelFacts& model : built_in_models()) {
        const auto names = model_names();
        EXPECT_NE(std::ranges::find(names, model.name), names.end()) << model.name;
    }
}

TEST(ModelTable, HasTheNumbersOfTheirPapers) {
    const std::map<std::string, std::int64_t> published = {{"cnn", 1'630'090},
                                                           {"resnet18", 11'689'512},
                                                           {"resnet34", 21'797'672},
                                                           {"resnet50", 25'557'032},
                                                           {"unet", 31'037'698},
                                                           {"densenet121", 7'978'856},
                                                           {"efficientnet_b0", 5'288'548},
                                                           {"efficientnet_b7", 66'347'960},
                                                           {"vit_b_16", 86'567'656}};
    for (const auto& [name, count] : published) {
        const ModelFacts* model = find_built_in(name);
        ASSERT_NE(model, nullptr) << name;
        EXPECT_EQ(model->parameters(model->usual), count) << name;
    }
}

// Spinning threads would share a busy machine.
class BuiltInModels : public testing::Test {
  protected:
    void SetUp() override { at::set_num_threads(1); }
};

Tensor inputs(std::int64_t n, const ModelShape& shape) {
    return shape.vocabulary > 0 ? torch::randint(shape.vocabulary, {n, shape.width})
                                : images(n, shape);
}

Sizes output_sizes(std::string_view task, std::int64_t n, const ModelShape& shape) {
    if (task == "segmentation") return {n, shape.classes, shape.height, shape.width};
    if (task == "next-token") return {n, shape.width, shape.vocabulary};
    return {n, shape.classes};
}

// Channels, sides and classes that none of them is known with.
TEST_F(BuiltInModels, HaveAsManyParametersAsTheTableSaysAndTakeSmallInputs) {
    for (const ModelFacts& facts : built_in_models()) {
        const bool takes_tokens = facts.usual.vocabulary > 0;
        const ModelShape shape =
            takes_tokens ? ModelShape{1, 1, 12, 7, 7} : ModelShape{2, 48, 32, 7};
        const auto model = make_model({std::string(facts.name), true}, shape, 1);
        EXPECT_EQ(element_count(*model), facts.parameters(shape)) << facts.name;
        model->eval();
        const at::NoGradGuard no_gradients;
        EXPECT_EQ(model->forward(inputs(2, shape)).sizes(), output_sizes(facts.task, 2, shape))
            << facts.name;
    }
}

TEST_F(BuiltInModels, LearnFromTwoSmallImages) {
    const ModelShape shape{1, 28, 28, 10};
    for (const std::string name : {"resnet18", "densenet121", "efficientnet_b0"}) {
        const auto model = make_model({name, true}, shape, 1);
        model->forward(images(2, shape)).square().sum().backward();
        for (const auto& item : model->named_parameters())
            EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << name << item.key();
        for (const auto& item : model->named_buffers())
            EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << name << item.key();
    }
}

TEST_F(BuiltInModels, RefuseShapesThatTheyCannotTakeAndDoWithoutBiases) {
    const auto code = [](const std::string& name, const ModelShape& shape) {
        return test::caught_code([&] { make_model({name, true}, shape, 1); });
    };
    EXPECT_EQ(code("cnn", {1, 3, 28, 10}), "E217");
    EXPECT_EQ(code("vit_b_16", {1, 28, 28, 10}), "E217");
    EXPECT_EQ(code("vit_b_16", {1, 32, 40, 10}), "E217");
    for (const std::string name : {"resnet18", "densenet121", "efficientnet_b0"})
        EXPECT_EQ(code(name, {1, 1, 784, 10}), "E217") << name;
    const auto model = make_model({"resnet18", false}, {1, 8, 8, 10}, 1);
    EXPECT_FALSE(model->named_parameters().contains("fc.bias"));
    EXPECT_TRUE(model->named_parameters().contains("bn1.bias"));
}

TEST(BatchNorm, RefusesToTrainOnOneValueOfAChannel) {
    BatchNorm norm(3);
    const Tensor one = torch::randn({1, 3, 1, 1});
    EXPECT_THROW(norm.forward(one), c10::Error);
    EXPECT_NO_THROW(norm.forward(torch::randn({1, 3, 1, 2})));
    EXPECT_EQ(norm.named_buffers()["num_batches_tracked"].item<std::int64_t>(), 1);
    norm.eval();
    EXPECT_NO_THROW(norm.forward(one));
}

TEST(StochasticDepth, ZeroesWholeSamplesAndScalesTheOthers) {
    StochasticDepth layer(0.25);
    const Tensor x = torch::ones({64, 2, 3, 3}), y = layer.forward(x);
    const Tensor first = y.select(1, 0).select(1, 0).select(1, 0);
    EXPECT_TRUE(y.equal(first.view({64, 1, 1, 1}).expand_as(y)));
    const Tensor kept = first.masked_select(first != 0);
    EXPECT_TRUE(kept.equal(torch::full_like(kept, 1.0F / 0.75F)));
    EXPECT_GT(kept.numel(), 32);
    EXPECT_LT(kept.numel(), 64);
    layer.eval();
    EXPECT_TRUE(layer.forward(x).equal(x));
}

// Embeddings; of a layer two norms, attention, feed-forward; the last norm.
std::int64_t gpt_count(const GptShape& shape) {
    const std::int64_t w = shape.width;
    return (shape.vocabulary + shape.context) * w + shape.layers * (12 * w * w + 13 * w) + 2 * w;
}

constexpr GptShape small_gpt{.vocabulary = 50, .context = 16, .layers = 2, .heads = 2, .width = 8};

TEST(Gpt, HasGpt2sParametersAndRefusesWhatItCannotTake) {
    const auto small = gpt(small_gpt, {});
    EXPECT_EQ(element_count(*small), gpt_count(small_gpt));
    EXPECT_EQ(gpt_count({}), 124'439'808);
    EXPECT_EQ(small->named_parameters()["h.1.attn.c_attn.weight"].sizes(), (Sizes{8, 24}));
    EXPECT_EQ(test::caught_code([] { gpt({.heads = 5, .width = 12}, {}); }), "E217");
    const Tensor tokens = torch::zeros({1, 17}, torch::kInt64);
    EXPECT_EQ(test::caught_code([&] { small->forward(tokens); }), "E217");
}

TEST(Gpt, SeesNoLaterToken) {
    torch::manual_seed(1);
    const auto model = gpt(small_gpt, {});
    model->eval();
    const Tensor tokens = torch::randint(50, {3, 12}, torch::kInt64);
    const Tensor before = model->forward(tokens);
    EXPECT_EQ(before.sizes(), (Sizes{3, 12, 50}));
    for (const std::int64_t at : {0, 5, 11}) {
        Tensor changed = tokens.clone();
        changed.select(1, at).add_(1).remainder_(50);
        const Tensor after = model->forward(changed);
        EXPECT_TRUE(after.slice(1, 0, at).equal(before.slice(1, 0, at))) << at;
        EXPECT_FALSE(after.select(1, at).equal(before.select(1, at))) << at;
    }
}

TEST(Unet, GivesLogitsForEachPixelOfAnyImage) {
    for (const ModelShape& shape : {ModelShape{1, 16, 16, 2}, ModelShape{3, 37, 50, 5}}) {
        const auto model = unet(shape, {.width = 4});
        const Tensor logits = model->forward(images(2, shape));
        EXPECT_EQ(logits.sizes(), (Sizes{2, shape.classes, shape.height, shape.width}));
        logits.sum().backward();
        for (const auto& item : model->named_parameters())
            EXPECT_TRUE(item.value().grad().defined()) << item.key();
    }
    EXPECT_EQ(test::caught_code([] { unet({1, 15, 28, 2}, {}); }), "E217");
}

}  // namespace
}  // namespace lockstep::models
